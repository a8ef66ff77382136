import type { Subscriptions } from '../../subscribe.ts';
import type { Families } from '../exposition/families.ts';

/** When a program's certificates expire. */
export function certificateMetrics(families: Families): Subscriptions {
  const expiry = families.gauges(
    'certificate_expiry_timestamp_seconds',
    'When the certificate in use expires, in seconds since the epoch, by where it is used: on a port (callers, agents, peers, admin), or as a client certificate (uplink, redis, and peers on a gateway).',
    ['where'],
  );
  return { certificate: (where, validUntil) => expiry.of({ where }).set(validUntil / 1000) };
}
