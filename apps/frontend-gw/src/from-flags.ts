import {
  callerPorts,
  callerTls,
  type GatewayValues,
  parseDirect,
  parseStrategies,
  portsOfProcess,
  proxyNetworks,
  resumeOptions,
} from '@isthmus/flags';
import type { Gateway, GatewayParts } from '@isthmus/plane';
import { GATEWAY } from './defaults.ts';
import { type GatewayOptions, gateway } from './gateway.ts';

function gatewayOptions(
  flags: GatewayValues,
): Omit<GatewayOptions, 'directory' | 'nextHop' | 'observation' | 'tunnels' | 'instance'> {
  const resume = resumeOptions(flags);
  return {
    callers: callerPorts(flags),
    ...(flags.mode !== '' && { mode: flags.mode }),
    proxyNetworks: proxyNetworks(flags),
    ownPorts: {
      host: flags['server-bind-address'],
      tls: callerTls(flags),
      deleteExisting: flags['delete-existing-uds-file'],
    },
    strategies: parseStrategies(flags['proxy-strategies']),
    gatewayId: flags['server-id'],
    zone: flags.zone,
    dialTimeout: flags['backend-dial-timeout'] || GATEWAY.dialMs,
    parkTimeout: flags['dial-park-timeout'],
    halfClosedMs: flags['half-closed-timeout'],
    drainIdleMs: flags['drain-idle-timeout'],
    // Also those of a hub in this process.
    direct: { ...parseDirect(flags), ports: portsOfProcess(flags) },
    ...(resume && { resume }),
    keepaliveTime: flags['frontend-keepalive-time'],
  };
}

/** Runs a gateway from a program's flags. */
export async function gatewayRole(flags: GatewayValues, { closing, ...parts }: GatewayParts): Promise<Gateway> {
  const running = await gateway({ ...gatewayOptions(flags), ...parts });
  closing.defer(running.close);
  return running;
}
