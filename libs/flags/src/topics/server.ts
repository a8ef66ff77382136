import { randomBytes, randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
// Not all of the package: agents load this file too.
import { STRATEGIES, type Strategy } from '@isthmus/directory/placement';
import { bool, duration, FlagError, int, oneOf, optionalInt, ownTopic, string, topic, type Values } from '../flag.ts';
import { SERVER_PORTS } from './callers.ts';
import { adminSocket, QUEUES } from './common.ts';

/** Parses `a=b,c=d` (upstream's `--lease-label`). @throws FlagError */
export function parseLabels(text: string): Record<string, string> {
  const pairs = text.split(',').map((pair): [string, string] => {
    const [key = '', value, ...rest] = pair.split('=');
    if (key.trim() === '' || value === undefined || rest.length > 0) {
      throw new FlagError('lease-label', `bad label ${JSON.stringify(pair)}: want key=value`);
    }
    return [key.trim(), value.trim()];
  });
  return Object.fromEntries(pairs);
}

export const serverIdentity = topic('Identity', {
  'server-id': string('', 'Unique id of this server.', {
    unset: { from: (env) => env.PROXY_SERVER_ID || randomUUID(), text: '$PROXY_SERVER_ID, else a new UUID' },
  }),
});

/** Nothing is stored under a gateway's id, so the id may show where the gateway runs. */
export const gatewayIdentity = topic('Identity', {
  'server-id': string('', 'Unique id of this gateway, shown to operators.', {
    unset: {
      from: (env) => env.PROXY_SERVER_ID || `${hostname()}-${randomBytes(3).toString('hex')}`,
      text: "$PROXY_SERVER_ID, else the machine's name and six random hexadecimal digits",
    },
  }),
});

export const serverCount = topic('Identity', {
  'server-count': optionalInt(1, 'Number of servers that agents should connect to.', {
    unset: { text: '1; in a plane, the number of its hubs that accept agents' },
  }),
});

export const serverPorts = topic('Listening: health, metrics and administration', {
  'health-port': int(8092, 'TCP port of /healthz, /readyz and /metrics.', {
    port: { bind: 'health-bind-address', ...SERVER_PORTS },
  }),
  'health-bind-address': string('', 'Address of --health-port. Empty for all.'),
  'admin-port': int(8095, 'TCP port of the admin RPC, /metrics and /debug/pprof.', {
    port: { bind: 'admin-bind-address', ...SERVER_PORTS },
  }),
  ...adminSocket,
  'admin-bind-address': string(
    '127.0.0.1',
    'Address of --admin-port. Empty for all. Beyond loopback, the admin RPC needs --admin-server-cert.',
  ),
  console: oneOf(['auto', 'on', 'off'])(
    'auto',
    'Serve the console at /console/ on the admin port: on, off, or auto, which is on for loopback and a unix socket.',
    { own: true },
  ),
  'console-trace-url': string(
    '',
    'Where the console links to the trace of a dial: a URL with {trace_id} in it. Empty for no links.',
    { own: true },
  ),
});

export const routing = topic('Behaviour', {
  'proxy-strategies': string(
    'default',
    `How to choose an agent for a dial, tried in order: a comma list of ${STRATEGIES.join(', ')}.`,
  ),
  'backend-dial-timeout': duration(0, 'How long a dial may wait for its answer. 0 means 30s.'),
  'dial-park-timeout': duration(2000, 'How long a dial waits for a session while none can carry it.', { own: true }),
  'half-closed-timeout': duration(
    300_000,
    'How long a tunnel by HTTP CONNECT may carry nothing once one side has ended. Then it is cut.',
    { own: true },
  ),
});

/** @param initial 0 is upstream's default */
export function shutdown(initial: number) {
  return topic('Behaviour', {
    'graceful-shutdown-timeout': duration(
      initial,
      'How long tunnels may take to finish after SIGTERM. 0, or a second signal, ends them at once.',
    ),
  });
}

/** For what has tunnels of its own: gateways and agents. */
export const drainIdle = ownTopic('Behaviour', {
  'drain-idle-timeout': duration(
    45_000,
    "A drain ends (FIN) each tunnel that has carried nothing for so long since its destination's last answer. 0 for none. Less than 31s also ends HTTP/2 connections in use, which send a PING after 30s.",
  ),
});

export const shutdownDelay = ownTopic('Behaviour', {
  'shutdown-delay-duration': duration(
    0,
    'How long to go on accepting after SIGTERM, while /readyz fails. --graceful-shutdown-timeout starts afterwards.',
  ),
});

export const queues = topic('Behaviour', {
  'xfr-channel-size': int(10, 'Packets queued for each connection.', QUEUES),
  'frontend-write-channel-size': int(10, 'Packets queued for each HTTP CONNECT caller. 0 for none.', QUEUES),
  'warn-on-channel-limit': bool(true, 'Warn when a queue is full.', {
    inert: 'the metric full_receive_channels always counts full queues',
    hidden: true,
  }),
});

export const serverLeases = topic('Leases', {
  'enable-lease-controller': bool(false, 'Hold a Lease for this server, and delete Leases of servers that are gone.'),
  'lease-namespace': string('kube-system', 'Namespace of the Leases.'),
  'lease-label': string('k8s-app=konnectivity-server', 'Labels of the Leases: a comma list of key=value.'),
});

/** @throws FlagError */
export function parseStrategies(list: string): Strategy[] {
  const names = list.split(',').filter((name) => name !== '');
  if (names.length === 0) throw new FlagError('proxy-strategies', `must not be empty: want ${STRATEGIES.join(', ')}`);
  return names.map((name) => {
    const strategy = STRATEGIES.find((known) => known === name);
    if (strategy) return strategy;
    throw new FlagError('proxy-strategies', `unknown strategy ${JSON.stringify(name)}: want ${STRATEGIES.join(', ')}`);
  });
}

/** Ids are used in gRPC metadata, HTTP headers and registry keys. */
export function checkId(flag: string, id: string): void {
  if (!/^[!-~]{1,253}$/.test(id)) {
    throw new FlagError(flag, `bad id ${JSON.stringify(id)}: want 1 to 253 ASCII characters without spaces`);
  }
}

export function checkServerCount(flags: Values<typeof serverCount>): void {
  const count = flags['server-count'];
  if (count !== undefined && count < 1) throw new FlagError('server-count', `bad number ${count}: want 1 or more`);
}

export function checkConsole(flags: Pick<Values<typeof serverPorts>, 'console-trace-url'>): void {
  const url = flags['console-trace-url'];
  if (url === '') return;
  const sample = url.replaceAll('{trace_id}', '0');
  if (!/^https?:\/\//i.test(sample) || !URL.canParse(sample)) {
    throw new FlagError('console-trace-url', `bad URL ${JSON.stringify(url)}: want http://... or https://...`);
  }
  if (sample === url) throw new FlagError('console-trace-url', `${url} has no {trace_id}: put it where the id belongs`);
}
