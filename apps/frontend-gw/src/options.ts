import { type GatewayValues, parseStrategies, proxyNetworks, resumeOptions, tlsPolicy } from '@isthmus/flags';
import type { TlsSettings } from '@isthmus/runtime';
import type { CallerPort } from './callers.ts';
import type { GatewayOptions } from './gateway.ts';

/** What a dial may take where `--backend-dial-timeout` sets no limit, in milliseconds: nothing waits without a deadline. */
const DIAL_TIMEOUT = 30_000;

function callerPorts(flags: GatewayValues): CallerPort[] {
  const ports: CallerPort[] = [];
  if (flags['uds-name'] !== '') {
    ports.push({ address: { path: flags['uds-name'], deleteExisting: flags['delete-existing-uds-file'] } });
  }
  if (flags['server-port'] !== 0) {
    ports.push({ address: { host: flags['server-bind-address'], port: flags['server-port'] }, tls: callerTls(flags) });
  }
  return ports;
}

function callerTls(flags: GatewayValues): TlsSettings {
  return { cert: flags['server-cert'], key: flags['server-key'], ca: flags['server-ca-cert'], ...tlsPolicy(flags) };
}

export function gatewayOptions(
  flags: GatewayValues,
): Omit<GatewayOptions, 'directory' | 'link' | 'observation' | 'instance'> {
  const resume = resumeOptions(flags);
  return {
    callers: callerPorts(flags),
    ...(flags.mode !== '' && { mode: flags.mode }),
    proxyNetworks: proxyNetworks(flags),
    tenant: 'default',
    ownPorts: {
      host: flags['server-bind-address'],
      tls: callerTls(flags),
      deleteExisting: flags['delete-existing-uds-file'],
    },
    strategies: parseStrategies(flags['proxy-strategies']),
    zone: flags.zone,
    dialTimeout: flags['backend-dial-timeout'] || DIAL_TIMEOUT,
    parkTimeout: flags['dial-park-timeout'],
    halfClosedMs: flags['half-closed-timeout'],
    drainIdleMs: flags['drain-idle-timeout'],
    ...(resume && { resume }),
    keepaliveTime: flags['frontend-keepalive-time'],
  };
}
