import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  DialError,
  NotAuthorised,
  PlaneEnded,
  type PlaneEvents,
  ReaderStalled,
  type ResumableTunnel,
  type SessionInfo,
} from '@isthmus/tunnel';
import { dial, logged } from '../testing/events.ts';

test('a dial is one line with all fields that identify it', () => {
  const outcome = { ms: 3.2123, agentId: 'a1', sessionId: 's1', hubId: 'h1', timing: { dnsMs: 1.23456, connectMs: 2 } };
  const [{ time: _, ...line }] = logged((events) => events.emit('dial:end', 'gateway', dial, outcome), 5);
  assert.deepEqual(line, {
    level: 'debug',
    name: 'gateway',
    msg: 'dial established',
    destination: '[fd00::1]:443',
    agent: 'a1',
    ms: 3.2,
    role: 'gateway',
    dial: dial.id,
    tenant: 'default',
    caller: 'CN=kube-apiserver',
    via: 'http-connect',
    trace: '0af7651916cd43dd8448eb211c80319c',
    session: 's1',
    hub: 'h1',
    dnsMs: 1.235,
    connectMs: 2,
  });
});

test('a failed dial is a warning with its RFC 9209 name, its reason and its text', () => {
  const error = new DialError('connection_refused', 'dial tcp: connect: connection refused');
  const [line] = logged((events) => events.emit('dial:end', 'agent', dial, { ms: 1, error, failure: 'error' }));
  assert.equal(line.level, 'warn');
  assert.equal(line.msg, 'dial failed');
  assert.deepEqual([line.error, line.reason, line.text], ['connection_refused', 'error_response', error.message]);
});

test('a dial that an operator tried causes no warning anywhere', () => {
  const error = new DialError('connection_refused', 'no');
  for (const role of ['gateway', 'hub', 'agent'] as const) {
    const outcome = { ms: 1, error, failure: 'error' as const };
    assert.deepEqual(
      logged((events) => events.emit('dial:end', role, { ...dial, trial: true }, outcome), 1),
      [],
    );
  }
});

test('a caller that gave up causes no warning', () => {
  const error = new DialError('connection_terminated', 'gone');
  const emit = (events: PlaneEvents) =>
    void events.emit('dial:end', 'gateway', dial, { ms: 1, error, failure: 'abandoned' });
  assert.deepEqual(logged(emit, 0), []);
  assert.equal(logged(emit)[0].level, 'info');
});

test('a dial that succeeded gets a line only if it was slow, or for debugging', () => {
  const emit = (events: PlaneEvents) => {
    for (const ms of [1000, 1001])
      for (const role of ['hub', 'gateway'] as const) events.emit('dial:end', role, dial, { ms });
  };
  const of = (verbosity: number) => logged(emit, verbosity, 1000).map(({ role, ms }) => [role, ms]);
  assert.deepEqual(of(4), [['gateway', 1001]]);
  assert.equal(of(5).length, 4);
});

test('changes of tunnels, sessions, servers, hubs and the registry are logged', () => {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const where = { sessionId: 's1', agentId: 'a1', hubId: 'h1' };
  const session: SessionInfo = { ...where, tenant: 't', identifiers, protocol: 'link', remote: 'r:1', since: 0 };
  const tunnel = { ...where, role: 'gateway', dial, since: 0, up: 5, down: 7 } as const;
  const lost = new PlaneEnded('lost');
  const lines = logged((events) => {
    events.emit('tunnel:close', tunnel, { how: 'cut', by: 'agent', error: lost }, 10);
    events.emit('tunnel:close', { ...tunnel, role: 'agent' }, { how: 'cut', by: 'agent', error: lost }, 10);
    events.emit('tunnel:close', tunnel, { how: 'failed', by: 'destination', error: new Error('reset') }, 10);
    events.emit('tunnel:close', tunnel, { how: 'closed', by: 'caller' }, 10);
    const stalled = new ReaderStalled('the destination read nothing');
    events.emit('tunnel:close', { ...tunnel, role: 'agent' }, { how: 'cut', by: 'limit', error: stalled }, 10);
    events.emit('session:open', session);
    events.emit('session:drain', session);
    events.emit('session:suspect', session, true);
    events.emit('session:suspect', session, false);
    events.emit('session:close', session, 'rolled');
    events.emit('server:open', { address: 'x:1', serverId: 's', protocol: 'link' });
    events.emit('server:close', { address: 'x:1', serverId: 's' }, 'gone');
    events.emit('server:failure', 'x:1', 'connecting', new Error('refused'));
    events.emit('peer:open', 'h1', 'y:1');
    events.emit('peer:suspect', 'h1', 'y:1', true);
    events.emit('peer:suspect', 'h1', 'y:1', false);
    events.emit('peer:close', 'h1', 'y:1', 'ping');
    events.emit('peer:failure', 'h1', 'y:1', new Error('connect ECONNREFUSED'));
    events.emit('certificate', 'callers', Date.UTC(2027, 0));
    events.emit('certificate:failure', 'callers', 'tls.crt', new Error('there is no certificate (PEM) in tls.crt'));
    events.emit('registry', 'down', 'ECONNRESET');
    events.emit('registry', 'up', 'again');
  });
  assert.deepEqual(
    lines.map(({ level, msg }) => `${level} ${msg}`),
    [
      'warn tunnel closed',
      'info tunnel closed',
      'warn tunnel closed',
      'info session opened',
      'info session drains',
      'info session is silent',
      'info session was heard again',
      'info session closed',
      'info server connected',
      'info server connection closed',
      'warn server connection failed',
      'info hub connected',
      'info hub is silent',
      'info hub was heard again',
      'info hub connection closed',
      'warn hub cannot be reached',
      'info certificate in use',
      'warn credential files cannot be used',
      'warn registry is down',
      'info registry is up',
    ],
  );
  const [cut, ended] = lines.map(({ up, down, closedBy, cut, text }) => [up, down, closedBy, cut, text]);
  assert.deepEqual(cut, [5, 7, 'plane', 'agent', 'lost']);
  assert.deepEqual(ended, [5, 7, 'destination', undefined, 'reset']);
});

test("refusals of one tenant's peers leave those of another their lines", () => {
  const refusal = (tenant: string) =>
    new NotAuthorised(`no agent of ${tenant}`, { principal: { tenant, role: 'agent', name: 'a', rule: 'r' } });
  const texts = logged((events) => {
    for (let n = 0; n < 1000; n++) events.emit('refused', 'agents', '10.0.0.1:1', refusal('acme'));
    events.emit('refused', 'agents', '10.0.0.2:1', refusal('beta'));
  }).map(({ text }) => text);
  assert.ok(texts.length < 1000);
  assert.ok(texts.includes('no agent of beta'));
});

test('a process logs a warning if peers reject its own certificate, now or soon', () => {
  const day = 86_400_000;
  const cases: readonly [from: number, until: number, level: string, msg: RegExp][] = [
    [-300, 60, 'info', /^certificate in use$/],
    [-351, 13, 'warn', /^own certificate expires soon/],
    [-20, 6, 'info', /^certificate in use$/],
    [-25, 5, 'warn', /^own certificate expires soon/],
    [-30, -1, 'warn', /^own certificate has expired: renew it, or set this machine's clock/],
    [1, 30, 'warn', /^own certificate is not valid yet/],
  ];
  for (const [from, until, level, msg] of cases) {
    const about = { name: 'CN=a, serial 01', validFrom: Date.now() + from * day };
    const [line] = logged((events) => void events.emit('certificate', 'uplink', Date.now() + until * day, about));
    assert.deepEqual([line.level, line.certificate], [level, about.name], `${from} to ${until}`);
    assert.match(String(line.msg), msg);
  }
});

const LOST = new Error('ping: no answer for 2.3 s');

function tunnel(change: Partial<ResumableTunnel> = {}): ResumableTunnel {
  return { dial, agentId: 'a1', sessionId: 's1', hubId: 'h1', attached: false, moves: 0, kept: 0, ...change };
}

test('a tunnel that is detached, then resumed or moved, has a line for each, with its dial', () => {
  const records = logged((events) => {
    events.emit('tunnel:detach', tunnel(), LOST);
    events.emit('tunnel:attach', tunnel({ hubId: 'h2', sessionId: 's2', moves: 1 }), 40.4);
    events.emit('tunnel:attach', tunnel({ hubId: 'h3', sessionId: 's3', moves: 2 }), 0);
  }, 5);
  const who = { destination: '[fd00::1]:443', agent: 'a1', dial: dial.id, tenant: 'default' };
  const [first, second, third] = [1, 2, 3].map((at) => ({ ...who, session: `s${at}`, hub: `h${at}` }));
  assert.deepEqual(
    records.map(({ time: _time, name: _name, ...record }) => record),
    [
      { level: 'info', ...first, text: LOST.message, msg: 'tunnel detached' },
      { level: 'info', ...second, moves: 1, pausedMs: 40, msg: 'tunnel resumed' },
      { level: 'info', ...third, moves: 2, msg: 'tunnel moved' },
    ],
  );
});

test('2,000 tunnels that lose one hub write a few lines and a count, also as they go on', () => {
  const lines = logged((events) => {
    for (let i = 0; i < 2000; i++) events.emit('tunnel:detach', tunnel(), LOST);
    for (let i = 0; i < 1500; i++) events.emit('tunnel:attach', tunnel({ hubId: 'h2' }), 30);
  });
  const counts = Object.fromEntries(lines.map(({ of, count }) => [of, count]).slice(-2));
  assert.deepEqual(
    [lines.length, counts],
    [22, { 'tunnels detached from hub h1': 1990, 'tunnels resumed to hub h2': 1490 }],
  );
});

test('the closing line of a tunnel says how often it moved', () => {
  const [line] = logged((events) => {
    const info = {
      role: 'gateway',
      dial,
      agentId: 'a1',
      sessionId: 's2',
      hubId: 'h2',
      since: 0,
      up: 1,
      down: 2,
    } as const;
    events.emit('tunnel:close', { ...info, resumable: tunnel({ moves: 3 }) }, { how: 'closed', by: 'caller' }, 1);
  }, 5);
  assert.deepEqual([line.msg, line.hub, line.moves], ['tunnel closed', 'h2', 3]);
});
