// npm run bench -- --one-address: what it costs to pass clients on to their API server by name, beside HAProxy, and beside no one in between.
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import net from 'node:net';
import { freePort, killChild, newTrust, Scope, startServer, tempDir, until } from '../harness/index.ts';
import { ask, listening } from '../rig/child.ts';
import { derived, short } from '../rig/figures.ts';
import { NAME } from '../rig/load/hello.ts';
import type { Load, Result, WorkName } from '../rig/load/messages.ts';

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
  /** Of the process in between, whose time and memory are taken; 0 for none. */
  readonly pid: number;
}

interface Row {
  readonly title: string;
  readonly work: WorkName;
  readonly conns: number;
  readonly figures: readonly string[];
}

/** What clients do: open connections one after the other, read as fast as they can, ask on kept connections. */
const ROWS: readonly Row[] = [
  {
    title: 'connections',
    work: 'dials',
    conns: 16,
    figures: ['dials_per_s', 'first_byte_p99_us', 'plane_cpu_ms_per_dial'],
  },
  { title: 'bulk', work: 'bulk', conns: 4, figures: ['gb_per_s', 'plane_cpu_s_per_gb'] },
  { title: 'requests', work: 'ping', conns: 16, figures: ['pings_per_s', 'p50_us', 'p99_us', 'plane_cpu_us_per_ping'] },
];

/** How long a load may take beyond its window. */
const GRACE_MS = 60_000;

/** Measures all works on all contenders, in turn. */
export async function measureOneAddress(settings: OneAddressSettings, say: (line: string) => void): Promise<void> {
  await using scope = new Scope();
  const { port } = await listening(scope, 'rig/load/destination.ts');
  const contenders: Contender[] = [
    { name: 'direct', port, pid: 0 },
    await isthmus(scope, port),
    ...(settings.haproxy === undefined ? [] : [await haproxy(scope, settings.haproxy, port)]),
  ];
  say(`| | ${contenders.map(({ name }) => name).join(' | ')} |`);
  say(`| --- ${'| --- '.repeat(contenders.length)}|`);
  const silent: Row = { title: 'idle', work: 'idle', conns: settings.idle, figures: ['plane_kb_per_tunnel'] };
  for (const row of [...ROWS, ...(settings.idle > 0 ? [silent] : [])]) {
    const cells: string[] = [];
    for (const contender of contenders) cells.push(await cell(row, contender, port, settings.windowMs));
    say(`| ${row.title} ×${row.conns} | ${cells.join(' | ')} |`);
  }
}

async function cell(
  { work, conns, figures }: Row,
  { port, pid }: Contender,
  destinationPort: number,
  windowMs: number,
) {
  const front = { kind: 'forward', port, named: true } as const;
  const groups: Record<string, number[]> = pid === 0 ? {} : { hub: [pid] };
  const load = { load: 'work', front, destinationPort, work, conns, windowMs, pace: 1, rate: 0, groups } satisfies Load;
  const { figures: found, errors } = await ask<Result>('rig/load/main.ts', load, windowMs + GRACE_MS);
  const all = derived(found, Object.keys(groups));
  const told = figures.flatMap((name) => (all[name] === undefined ? [] : [`${name} ${short(all[name])}`]));
  return [...told, ...Object.entries(errors).map(([kind, count]) => `${count} × ${kind}`)].join(', ');
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
