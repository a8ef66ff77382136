// npm run bench -- --one-address: what it costs to pass clients on to their API server by name, beside HAProxy, and beside no one in between.
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import net from 'node:net';
import { freePort, killChild, newTrust, Scope, startServer, tempDir, until } from '../../harness/index.ts';
import { ask, listening } from '../child.ts';
import { short } from '../figures.ts';
import { type LoadFigures, type LoadSettings, NAME, type Work } from './messages.ts';

interface OneAddressSettings {
  readonly windowMs: number;
  /** HAProxy's program; without it, there is no such column. */
  readonly haproxy?: string | undefined;
  /** Silent connections. */
  readonly idle: number;
}

interface Contender {
  readonly name: string;
  readonly port: number;
  readonly pid: number;
}

const WORKS: readonly (readonly [work: Work, conns: number])[] = [
  ['connections', 16],
  ['bulk', 4],
  ['requests', 16],
];

/** How long a load may take beyond its window. */
const GRACE_MS = 60_000;

/** Measures all works on all contenders, in turn. */
export async function measureOneAddress(settings: OneAddressSettings, say: (line: string) => void): Promise<void> {
  await using scope = new Scope();
  const { port } = await listening(scope, './one-address/upstream.ts');
  const contenders: Contender[] = [
    { name: 'direct', port, pid: 0 },
    await isthmus(scope, port),
    ...(settings.haproxy === undefined ? [] : [await haproxy(scope, settings.haproxy, port)]),
  ];
  say(`| | ${contenders.map(({ name }) => name).join(' | ')} |`);
  say(`| --- ${'| --- '.repeat(contenders.length)}|`);
  const works = [...WORKS, ...(settings.idle > 0 ? [['idle', settings.idle] as const] : [])];
  for (const [work, conns] of works) {
    const cells: string[] = [];
    for (const contender of contenders) {
      if (work === 'idle' && contender.pid === 0) cells.push('');
      else cells.push(told(await figuresOf({ work, conns, windowMs: settings.windowMs, ...contender })));
    }
    say(`| ${work} ×${conns} | ${cells.join(' | ')} |`);
  }
}

function figuresOf({ work, port, conns, windowMs, pid }: LoadSettings): Promise<LoadFigures> {
  const settings: LoadSettings = { work, port, conns, windowMs, pid };
  return ask<LoadFigures>('./one-address/load.ts', settings, windowMs + GRACE_MS);
}

function told(figures: LoadFigures): string {
  return Object.entries(figures)
    .map(([name, value]) => `${name} ${short(value)}`)
    .join(', ');
}

async function isthmus(scope: Scope, upstream: number): Promise<Contender> {
  const trust = await newTrust(scope);
  const flags = { 'api-server-name': NAME, 'api-server': `127.0.0.1:${upstream}` };
  const { program, agentPort } = await startServer(scope, trust, flags);
  return { name: 'isthmus', port: agentPort, pid: program.pid };
}

async function haproxy(scope: Scope, path: string, upstream: number): Promise<Contender> {
  const port = await freePort();
  const config = `${await tempDir(scope)}/haproxy.cfg`;
  await writeFile(
    config,
    `global
  nbthread 1
  maxconn 5000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option splice-auto
frontend names
  bind 127.0.0.1:${port}
  tcp-request inspect-delay 5s
  tcp-request content accept if { req_ssl_hello_type 1 }
  use_backend api if { req_ssl_sni -i ${NAME} }
backend api
  balance leastconn
  server api 127.0.0.1:${upstream}
`,
  );
  const child = spawn(path, ['-db', '-f', config], { stdio: 'inherit' });
  scope.defer(() => killChild(child));
  const listens = () =>
    new Promise<boolean>((resolve) => {
      const socket = net.connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
      socket.on('connect', () => socket.destroy());
    });
  await until(listens, { what: 'HAProxy to listen' });
  return { name: 'haproxy', port, pid: child.pid ?? 0 };
}
