import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import test from 'node:test';
import type { TLSSocket } from 'node:tls';
import { Scope, scoped, startAgent, until } from '../harness/index.ts';
import { block, FLAG, type FrameSocket, frame, TYPE } from './frames.ts';
import { refusals } from './rig.ts';
import { askForLink, ELSEWHERE, framed, memory, stranger, tokenServer } from './strangers.ts';

const MIB = 1024 * 1024;

const hello = (token: string) =>
  block([
    [':method', 'POST'],
    [':scheme', 'https'],
    [':path', '/AgentService/Connect'],
    [':authority', 'x'],
    ['te', 'trailers'],
    ['content-type', 'application/grpc'],
    ['agentid', 'stranger'],
    ['authorization', `Bearer ${token}`],
  ]);

/** How many bytes a peer may be sent on a stream: the window of its settings, plus its updates. */
function granted({ frames }: FrameSocket, stream: number): number {
  let window = 65_535;
  for (const { type, flags, payload, stream: of } of frames) {
    if (type === TYPE.SETTINGS && !(flags & FLAG.ACK)) window = settingOf(payload, 4) ?? window;
    if (type === TYPE.WINDOW_UPDATE && of === stream) window += payload.readUInt32BE();
    if (type === TYPE.RST_STREAM && of === stream) return 0;
  }
  return window;
}

function settingOf(payload: Buffer, id: number): number | undefined {
  for (let at = 0; at < payload.length; at += 6)
    if (payload.readUInt16BE(at) === id) return payload.readUInt32BE(at + 2);
  return undefined;
}

test(
  'strangers whose tokens are under review may send 64 KiB on one stream of each connection',
  scoped(async (scope) => {
    const { trust, server, api } = await tokenServer(scope);
    // The API server does not answer token reviews.
    api.intercept = (request) => request.url?.endsWith('/tokenreviews') === true;
    const before = await memory(server.program);
    let allowed = 0;
    for (let i = 0; i < 8; i++) {
      const peer = await framed(scope, trust, server.agentPort);
      await peer.frame(TYPE.SETTINGS);
      const streams = [1, 3, 5, 7];
      for (const id of streams) {
        await peer.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, hello(`junk-${i}-${id}`)));
      }
      await peer.send(frame(TYPE.PING, 0, 0, Buffer.alloc(8)));
      await peer.frame(TYPE.PING);
      for (const id of streams) {
        const bytes = granted(peer, id);
        allowed += bytes;
        const piece = frame(TYPE.DATA, 0, id, Buffer.alloc(16_384));
        for (let sent = 0; sent + 16_384 <= bytes; sent += 16_384) await peer.send(piece);
      }
    }
    assert.ok(allowed <= 8 * 65_536, `8 connections may send ${(allowed / MIB).toFixed(1)} MiB`);
    const grown = (await memory(server.program)) - before;
    assert.ok(grown < 64 * MIB, `the server grew by ${(grown / MIB).toFixed(0)} MiB`);
  }),
);

test(
  'a flood of junk tokens from one source does not keep out the agents of another',
  scoped(async (scope) => {
    const { trust, server, api } = await tokenServer(scope, { 'kubeconfig-qps': 5, 'kubeconfig-burst': 10 });
    let stop = false;
    let count = 0;
    const flood = Array.from({ length: 60 }, async () => {
      while (!stop) {
        await using own = new Scope();
        const socket = await stranger(own, trust, server.agentPort, 'http/1.1', ELSEWHERE);
        if (socket) await askForLink(socket, 'junk', `junk-${++count}`);
      }
    });
    const reviews = () => api.calls.filter((call) => call.endsWith('/tokenreviews')).length;
    // The burst that the API server gets at once is over: from here on it is asked five times a second.
    await until(() => count >= 60 && reviews() >= 12, { what: 'the flood' });
    await using own = new Scope();
    const socket = await stranger(own, trust, server.agentPort, 'http/1.1');
    // Only now: its handshake may take long on a busy machine, and reviews go on meanwhile.
    const asked = reviews();
    const status = socket && (await askForLink(socket, 'honest', 'good'));
    stop = true;
    assert.equal(status, 101, `an honest agent got ${status} after ${reviews() - asked} reviews`);
    assert.ok(reviews() - asked <= 30, `${reviews() - asked} reviews went before`);
    await Promise.all(flood);
  }),
);

test(
  'a token that 50 connections show at once is reviewed once, and not again for later ones',
  scoped(async (scope) => {
    const { trust, server, api } = await tokenServer(scope);
    const ask = async (token: string) => {
      const socket = await stranger(scope, trust, server.agentPort, 'http/1.1');
      return socket ? askForLink(socket, 'fleet', token) : 0;
    };
    const statuses = await Promise.all(Array.from({ length: 50 }, () => ask('good')));
    assert.deepEqual([...new Set(statuses)], [101]);
    assert.equal(await ask('good'), 101);
    const junk = await Promise.all(Array.from({ length: 50 }, () => ask('junk')));
    assert.deepEqual([...new Set(junk)], [403]);
    assert.equal(api.calls.filter((call) => call.endsWith('/tokenreviews')).length, 2);
  }),
);

test(
  'waiting connections are bounded by source and in all, and honest agents get in beside them',
  scoped(async (scope) => {
    const { trust, server, api } = await tokenServer(scope, {
      'max-waiting-agents': 30,
      'max-waiting-agents-per-source': 20,
    });
    const { program, agentPort: port } = server;
    api.intercept = (request) => request.url?.endsWith('/tokenreviews') === true;
    let open = 0;
    const come = async (from: string) => {
      const socket = await stranger(scope, trust, port, 'http/1.1', from);
      if (!socket) return;
      open++;
      socket.once('close', () => open--);
      await askForLink(socket, 'stranger', `junk-${from}-${open}`);
    };
    const waiting = [
      ...Array.from({ length: 40 }, () => come(ELSEWHERE)),
      ...Array.from({ length: 40 }, () => come('127.0.0.8')),
    ];
    const at = 'agents waiting';
    await until(async () => (await refusals(program, at)) >= 50 && open <= 30, {
      what: () => `50 of 80 to be refused; ${open} are open${program.tail}`,
    });
    await program.waitForLog(({ where, text }) => where === at && /--max-waiting-agents/.test(String(text)), {
      what: 'a line that names the flag',
    });
    api.intercept = () => false;
    const token = `${trust.dir}/token`;
    await writeFile(token, 'good');
    const flags = { 'agent-cert': undefined, 'agent-key': undefined, 'service-account-token-path': token };
    const agent = await startAgent(scope, trust, port, flags);
    await agent.waitReady();
    scope.defer(() => Promise.all(waiting).then(() => {}));
  }),
);

test(
  'a fleet behind one address gets in, a few at a time',
  scoped(async (scope) => {
    const { trust, server } = await tokenServer(scope, { 'max-waiting-agents-per-source': 10 });
    const come = () => stranger(scope, trust, server.agentPort, 'http/1.1');
    // None asks for its link before all have come, so most find no place.
    const sockets = await Promise.all(Array.from({ length: 100 }, come));
    assert.ok(sockets.includes(undefined), 'more came at once than may wait');
    const join = async (first: TLSSocket | undefined, index: number) => {
      const agent = `fleet-${index}`;
      let socket = first;
      const isIn = async () => {
        if (socket && (await askForLink(socket, agent, 'good')) === 101) return true;
        socket = await come();
        return false;
      };
      await until(isIn, { what: `${agent} to be let in` });
    };
    await Promise.all(sockets.map(join));
  }),
);
