import test from 'node:test';
import { echo, newTrust, Scope, startAgent, startServer, until } from '../harness/index.ts';
import { block, FLAG, frame, PREFACE, settings, TYPE } from './frames.ts';
import { rogueHub, turnstile } from './links.ts';
import { attack, bystander } from './rig.ts';

const ACCEPTED = [
  'HTTP/1.1 101 Switching Protocols',
  'connection: upgrade',
  'upgrade: isthmus-link/1',
  'isthmus-hub: rogue',
  'isthmus-session: 0123456789abcdef',
  'isthmus-server-count: 2',
  'isthmus-plane: rogues',
  '',
  '',
].join('\r\n');

/** Heads that do not accept the agent. */
const HEADS: readonly [name: string, head: string][] = [
  ['a hub id that is not encoded', ACCEPTED.replace('hub: rogue', 'hub: %zz')],
  ['no hub id', ACCEPTED.replace('isthmus-hub: rogue\r\n', '')],
  ['an invalid server count', ACCEPTED.replace('count: 2', 'count: many')],
  ['another status', 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'],
  ['an error that is not encoded', 'HTTP/1.1 403 Forbidden\r\nisthmus-error: %zz\r\n\r\n'],
  ['garbage', '\0\0\0\0\0\0\r\n\r\n'],
  ['a head of 64 KiB', `HTTP/1.1 101 x\r\nx: ${'x'.repeat(65_536)}\r\n\r\n`],
];

function member(address: string, hubId = 'x'): string {
  return JSON.stringify({ hubId, address, zone: '', draining: false, generation: 1 });
}

/** What a hub may write on its control stream. */
const LINES: readonly string[] = [
  'nonsense',
  'null',
  '{"type":"later"}',
  '{"type":"abort"}',
  '{"type":"abort","dial":{}}',
  '{"type":"membership"}',
  '{"type":"membership","hubs":null}',
  '{"type":"membership","hubs":"all"}',
  '{"type":"membership","current":true,"hubs":[null]}',
  '{"type":"membership","current":true,"hubs":[{"hubId":1,"address":2,"zone":3,"draining":4,"generation":5}]}',
  `{"type":"membership","current":true,"hubs":[${member('no address')}]}`,
  `{"type":"membership","current":true,"hubs":[${Array(129).fill(member('127.0.0.1:1')).join()}]}`,
  `{"type":"membership","current":true,"hubs":[${Array.from({ length: 128 }, (_, i) => member('127.0.0.1:1', `h${i}`)).join()}]}`,
  '{"type":"membership-change","current":true,"changed":[],"gone":[null]}',
  '{"type":"membership-change","current":true,"changed":[],"gone":["rogue"]}',
  '{"type":"policy","deny":"all"}',
  '{"type":"policy","deny":[{"cidr":"10.0.0.0/99"}],"allow":[{"host":"*"}]}',
  '{"type":"hung-up"}',
  '{"type":"hung-up","gateway":"all"}',
  '{"type":"hung-up","gateway":"0123456789abcdef"}',
  '{"type":"drain"}',
  'x'.repeat(1 << 20),
];

type Fields = readonly (readonly [name: string, value: string])[];

const DIAL: Fields = [
  [':method', 'CONNECT'],
  [':authority', '127.0.0.1:1'],
];
const GOOD: Fields = [
  ...DIAL,
  ['isthmus-dial', '0123456789abcdef'],
  ['isthmus-tenant', 'default'],
  ['isthmus-deadline', '100'],
];

/** Requests in a row, the first on stream 3. */
const REQUESTS: readonly [name: string, ...requests: Fields[]][] = [
  ['dials without our fields', DIAL],
  [
    'a deadline that has passed',
    GOOD.map(([name, value]) => [name, name === 'isthmus-deadline' ? '-5' : value] as const),
  ],
  ['an endless deadline', GOOD.map(([name, value]) => [name, name === 'isthmus-deadline' ? '1e308' : value] as const)],
  ['the same dial twice', GOOD, GOOD],
  ['no destination', GOOD.map(([name, value]) => [name, name === ':authority' ? 'x' : value] as const)],
  [
    'a second control stream',
    [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', '/control'],
      [':authority', 'x'],
    ],
  ],
  [
    'a page',
    [
      [':method', 'GET'],
      [':scheme', 'http'],
      [':path', '/'],
      [':authority', 'x'],
    ],
  ],
];

const CONTROL = frame(
  TYPE.HEADERS,
  FLAG.END_HEADERS,
  1,
  block([
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', '/control'],
    [':authority', 'link'],
  ]),
);

test("a hub that misuses its link leaves the agent's other links alone", async (t) => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'server-count': 2 });
  // The agent looks for a second server behind the same port. Whatever answers there next is the attacker.
  const ports = [server.agentPort];
  const agent = await startAgent(scope, trust, await turnstile(scope, ports), {
    'agent-id': 'victim',
    'sync-interval': '50ms',
    'sync-interval-cap': '100ms',
  });
  await server.program.waitReady();
  const destination = await echo(scope);
  const victim = await bystander(scope, server.connect, destination.authority, [server.program, agent]);
  const lure = async (scope: Scope, head: string, ...frames: Buffer[]) => {
    const sockets: { ended: boolean }[] = [];
    const port = await rogueHub(scope, trust, head, (socket) => {
      sockets.push(socket);
      if (frames.length > 0) void socket.send(PREFACE, settings(), ...frames);
    });
    ports.splice(0, ports.length, port);
    return until(() => sockets.length > 0 && sockets, { what: 'the agent to come' });
  };

  for (const [name, head] of HEADS) {
    await attack(t, victim, `it answers with ${name}`, async (scope) => {
      await lure(scope, head);
      await agent.waitForLog(({ msg }) => msg === 'server connection failed', { what: 'a line' });
    });
  }
  for (const line of LINES) {
    await attack(t, victim, `it says ${line.slice(0, 60)}`, async (scope) => {
      const parts: Buffer[] = [];
      const text = `${line}\n`;
      for (let at = 0; at < text.length; at += 16_000) {
        parts.push(frame(TYPE.DATA, 0, 1, Buffer.from(text.slice(at, at + 16_000))));
      }
      await lure(scope, ACCEPTED, CONTROL, ...parts);
      await victim.unharmed();
    });
  }
  for (const [name, ...requests] of REQUESTS) {
    await attack(t, victim, `it sends ${name}`, async (scope) => {
      const heads = requests.map((fields, i) => frame(TYPE.HEADERS, FLAG.END_HEADERS, 3 + 2 * i, block(fields)));
      await lure(scope, ACCEPTED, CONTROL, ...heads);
      await victim.unharmed();
    });
  }
});
