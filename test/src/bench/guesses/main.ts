// What one address costs the callers of another tenant by wrong tokens, or by connections alone: the 99th percentile of beta's dials by token, 20 a
// second, each on a connection of its own, alone and beside the flood, in turns. `elsewhere` has the same flood at another server, so that what
// the flood takes of the machine itself is seen.
// node test/src/bench/guesses/main.ts [ROUNDS [SECONDS [KIND,...]]]
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { newPassword } from '@isthmus/admission';
import { echo, killChild, newTrust, Scope, startAgent, startServer, until } from '../../harness/index.ts';
import { TenantsDirectory } from '../../tenants/tenants-directory.ts';
import { quantile } from '../figures.ts';

/** Wrong tokens on new connections, on connections that go on as long as they may, on gRPC calls, on calls of a known caller; connections alone. */
const KINDS = ['new', 'kept', 'calls', 'known', 'plain'] as const;
type Kind = (typeof KINDS)[number];

interface FloodSettings {
  readonly kind: Kind;
  readonly port: number;
  readonly servername: string;
  /** Of the tenant that floods. */
  readonly good: string;
  readonly wrong: string;
}

/** Connections of the flood at once, and calls of each. */
const CONNECTIONS = 512;
const STREAMS = 50;
const DIALS_PER_SECOND = 20;
const SETTLE = 10_000;

const basic = (tenant: string, token: string) => `Basic ${Buffer.from(`${tenant}:${token}`).toString('base64')}`;
const head = (to: string, proof: string) =>
  `CONNECT ${to} HTTP/1.1\r\nhost: ${to}\r\nproxy-authorization: ${proof}\r\n\r\n`;

/** Answers, and connections that ended. */
const done = { guesses: 0, ended: 0 };

async function flood({ kind, port, servername, good, wrong }: FloodSettings): Promise<void> {
  const proof = basic('acme', wrong);
  const shaken = (ALPNProtocols: string[]): TLSSocket =>
    connectTls({ port, host: '127.0.0.1', servername, rejectUnauthorized: false, ALPNProtocols });
  const overHttp1 = async () => {
    const socket = shaken(['http/1.1']).on('error', () => {});
    socket.on('data', () => {
      done.guesses++;
      if (kind === 'kept') socket.write(head('10.0.0.1:1', proof));
      else socket.destroy();
    });
    socket.write(head('10.0.0.1:1', proof));
    await new Promise((resolve) => socket.once('close', resolve).once('end', () => socket.destroy()));
  };
  const byGrpc = async () => {
    const session = connectHttp2('https://x', { createConnection: () => shaken(['h2']) }).on('error', () => {});
    const asked = (shown: string) => {
      if (session.destroyed) return Promise.resolve();
      const stream = session.request({
        ':method': 'POST',
        ':path': '/ProxyService/Proxy',
        'content-type': 'application/grpc',
        te: 'trailers',
        authorization: shown,
      });
      stream
        .on('error', () => {})
        .on('response', () => void done.guesses++)
        .resume()
        .end();
      return new Promise((resolve) => stream.once('close', resolve));
    };
    if (kind === 'known') await asked(basic('acme', good));
    const guessing = async () => {
      while (!session.destroyed && !session.closed) await asked(proof);
    };
    await Promise.all(Array.from({ length: STREAMS }, guessing));
    session.destroy();
  };
  const alone = async () => {
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    socket.once('connect', () => socket.destroy());
    await once(socket, 'close');
  };
  const one = { new: overHttp1, kept: overHttp1, calls: byGrpc, known: byGrpc, plain: alone }[kind];
  const going = async () => {
    for (;;) {
      await one();
      done.ended++;
      // What fails at once must not keep the others waiting.
      await new Promise(setImmediate);
    }
  };
  await Promise.all(Array.from({ length: kind === 'known' ? 8 : CONNECTIONS }, going));
}

async function plane(scope: Scope) {
  const [trust, directory] = [await newTrust(scope), await TenantsDirectory.create(scope)];
  const tokens = [newPassword(), newPassword()];
  const [acme, beta] = [await directory.trust('acme'), await directory.trust('beta')];
  for (const [index, { file }] of [acme, beta].entries()) {
    const { sha256 = '' } = tokens[index] ?? {};
    await directory.write({ ...file, callers: [{ passwords: [{ name: 'ci', sha256 }] }] });
  }
  const own = { 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': directory.path };
  const server = await startServer(scope, trust, own);
  const { cert, key } = await beta.agent('edge-1');
  const agent = await startAgent(scope, trust, server.agentPort, {
    'agent-id': 'edge-1',
    'agent-cert': cert,
    'agent-key': key,
  });
  await agent.waitReady();
  const { port } = server.mtls;
  return {
    pid: server.program.pid,
    acme: { port, servername: acme.serverName, good: tokens[0]?.token ?? '', wrong: newPassword().token },
    beta: { port, servername: beta.serverName, ca: readFileSync(beta.cluster.cert), token: tokens[1]?.token ?? '' },
    destination: (await echo(scope)).authority,
  };
}

type Plane = Awaited<ReturnType<typeof plane>>;

/** How long the event loop of a program has had a processor, in milliseconds. */
function loopMs(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/schedstat`, 'latin1').split(' ')[0]) / 1e6;
}

/** Of one dial, in milliseconds. */
interface Took {
  readonly ms: number;
  /** What the server's event loop worked meanwhile: as long as the dial would take if the machine had nothing else to do. */
  readonly loop: number;
}

/** Undefined if it failed. */
function dial({ pid, beta: { token, ...tls }, destination }: Plane): Promise<Took | undefined> {
  return new Promise((resolve) => {
    const [start, before] = [performance.now(), loopMs(pid)];
    // Its types do not know the address to connect from.
    const options = { host: '127.0.0.1', localAddress: '127.0.0.2', ...tls };
    const socket = connectTls(options);
    const settle = (answer = '') => {
      socket.destroy();
      const took = { ms: performance.now() - start, loop: loopMs(pid) - before };
      resolve(answer.startsWith('HTTP/1.1 200 ') ? took : undefined);
    };
    socket.setTimeout(30_000, () => settle()).on('error', () => settle());
    socket.once('data', (answer) => settle(`${answer}`));
    socket.write(head(destination, basic('beta', token)));
  });
}

async function measure(at: Plane, seconds: number) {
  const [dials, cpu, from]: [Promise<Took | undefined>[], number, number] = [[], loopMs(at.pid), performance.now()];
  for (let n = 0; n < seconds * DIALS_PER_SECOND; n++) {
    await pause(Math.max(0, from + (n * 1000) / DIALS_PER_SECOND - performance.now()));
    dials.push(dial(at));
  }
  const busy = (loopMs(at.pid) - cpu) / (performance.now() - from);
  const all = await Promise.all(dials);
  const good = all.filter((took) => took !== undefined);
  return { ms: good.map(({ ms }) => ms), loop: good.map(({ loop }) => loop), failed: all.length - good.length, busy };
}

async function beside(settings: FloodSettings, at: Plane, seconds: number) {
  const child = fork(new URL(import.meta.url), ['flood']);
  child.send(settings);
  const said = async () => {
    child.send('done');
    const [message] = await once(child, 'message');
    return message as typeof done;
  };
  await pause(SETTLE);
  const before = await said();
  const seen = await measure(at, seconds);
  const after = await said();
  await killChild(child);
  return {
    ...seen,
    guesses: (after.guesses - before.guesses) / seconds,
    ended: (after.ended - before.ended) / seconds,
  };
}

if (process.argv[2] === 'flood') {
  process.once('message', (settings) => {
    process.on('message', () => process.send?.(done));
    void flood(settings as FloodSettings);
  });
  process.once('disconnect', () => process.exit(0));
} else {
  const [rounds = 3, seconds = 15] = process.argv.slice(2, 4).map(Number);
  const kinds = (process.argv[4]?.split(',') ?? KINDS) as readonly Kind[];
  await using scope = new Scope();
  const [at, other] = [await plane(scope), await plane(scope)];
  for (const each of [at, other]) await until(async () => (await dial(each)) !== undefined, 'a dial');
  await measure(at, 5);
  for (const kind of kinds) {
    const rows: [string, Awaited<ReturnType<typeof measure>> & { guesses?: number; ended?: number }][] = [];
    for (let round = 0; round < rounds; round++) {
      rows.push(['alone', await measure(at, seconds)]);
      rows.push(['elsewhere', await beside({ kind, ...other.acme }, at, seconds)]);
      rows.push(['beside', await beside({ kind, ...at.acme }, at, seconds)]);
      await pause(SETTLE);
    }
    for (const [name, { ms, loop, failed, busy, guesses = 0, ended = 0 }] of rows) {
      const [p50, p99, loop50, loop99] = [ms, loop].flatMap((all) =>
        [0.5, 0.99].map((part) => quantile(all, part).toFixed(1)),
      );
      process.stdout.write(
        `${kind} ${name}: p50 ${p50} ms, p99 ${p99} ms; of the loop ${loop50} ms, ${loop99} ms; failed ${failed}, loop ${(100 * busy).toFixed(0)} %, ${guesses.toFixed(0)} answers/s, ${ended.toFixed(0)} ends/s\n`,
      );
    }
  }
}
