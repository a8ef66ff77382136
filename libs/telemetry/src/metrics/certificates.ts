import type { Subscriptions } from '../subscribe.ts';
import type { Families } from './families.ts';

/** When a program's certificates expire. */
export function certificateMetrics(families: Families): Subscriptions {
  const expiry = families.gauges(
    'certificate_expiry_timestamp_seconds',
    'When the certificate in force ends, in seconds since the epoch, by where it is shown: on a port (callers, agents, peers, admin), or to servers (uplink, redis, and peers of a gateway alone).',
    ['where'],
  );
  return { certificate: (where, validUntil) => expiry.of({ where }).set(validUntil / 1000) };
}
