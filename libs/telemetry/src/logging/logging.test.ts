import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError, type DialRequest, type PlaneEvents, planeEvents, type SessionInfo } from '@isthmus/tunnel';
import { request } from '../testing/dial.ts';
import { logEvents } from './log-events.ts';
import { createLogger, type LoggerOptions, levelOf } from './logger.ts';
import { redactUrl } from './redact.ts';

const dial: DialRequest = {
  ...{ ...request, destination: { host: 'fd00::1', port: 443 } },
  caller: { via: 'http-connect', identity: 'CN=kube-apiserver' },
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
};

function recorder(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 4, destination, ...options });
  return { lines, logger, records: () => lines.map((line) => JSON.parse(line)) };
}

/** The records that events make. */
function logged(emit: (events: PlaneEvents) => void, verbosity = 4) {
  const { logger, records } = recorder({ verbosity });
  const events = planeEvents();
  const end = logEvents(events, logger);
  emit(events);
  end();
  assert.deepEqual(events.eventNames(), []);
  return records();
}

/** A line of text without its time. */
function text(line: string | undefined): string {
  assert.match(line ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /);
  return (line ?? '').slice(25);
}

test('JSON is as pino writes it, with an ISO time and the level as a word', () => {
  const { logger, records } = recorder();
  logger.info({ agent: 'a1' }, 'hello');
  const [{ time, ...rest }] = records();
  assert.equal(new Date(time).toISOString(), time);
  assert.deepEqual(rest, { level: 'info', name: 'gateway', agent: 'a1', msg: 'hello' });
});

test('text is one readable line', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.info({ destination: '10.0.0.1:443', agent: 'a1', ms: 3.2, reason: 'two words' }, 'dial established');
  const expected = 'info  gateway  dial established destination=10.0.0.1:443 agent=a1 ms=3.2 reason="two words"\n';
  assert.equal(text(lines[0]), expected);
});

test('what a peer sent cannot start a line or move the cursor', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.warn({ remote: 'a\nb', text: 'x\u009b2J' }, 'refused\r\nfake');
  const expected = 'warn  gateway  refused\\u000d\\u000afake remote="a\\nb" text="x\\u009b2J"\n';
  assert.equal(text(lines[0]), expected);
});

test('an error shows its message, and its stack below a line of level error', () => {
  const { logger, lines } = recorder({ format: 'text' });
  logger.warn({ err: new Error('no luck') }, 'odd');
  logger.error({ err: new Error('no luck') }, 'bad');
  assert.equal(text(lines[0]), 'warn  gateway  odd err="no luck"\n');
  assert.match(text(lines[1]), /^error gateway {2}bad err="no luck"\n {6}at .+\n/);
});

test("klog's verbosity decides the level", () => {
  const levels = [-1, 0, 1, 2, 4, 5, 7, 8, 10].map(levelOf);
  assert.deepEqual(levels, ['warn', 'warn', 'warn', 'info', 'info', 'debug', 'debug', 'trace', 'trace']);
});

test('what is fatal is written at once, whatever becomes of the process', () => {
  const done: string[] = [];
  const destination = { write: (line: string) => void done.push(line), flush: () => void done.push('flushed') };
  const { logger } = recorder({ destination });
  logger.error({}, 'bad');
  logger.fatal({}, 'worse');
  assert.deepEqual(
    done.map((line) => /bad|worse|flushed/.exec(line)?.[0]),
    ['bad', 'worse', 'flushed'],
  );
});

for (const format of ['text', 'json'] as const) {
  test(`secrets never appear in ${format}`, () => {
    const { logger, lines } = recorder({ format });
    const token = 'eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl';
    const pem = '-----BEGIN EC PRIVATE KEY-----\nSECRET\n-----END EC PRIVATE KEY-----\n';
    logger.info({ token: 'SECRET', headers: { Authorization: 'SECRET "and" more' }, clientSecret: 'SECRET' }, 'fields');
    logger.info({ url: 'redis://user:SECRET@r:6379/0', list: ['rediss://:SECRET@r'] }, 'at redis://:SECRET@r, twice');
    logger.child({ password: 'SECRET' }).warn({ pem }, `got Bearer SECRET and ${token},\nBearer SECRET\n${token}`);
    logger.error({ err: new Error('connect redis://u:SECRET@r failed') }, 'error');
    for (const name of ['key', 'API-Key', 'private_key', 'authToken', 'cookie'])
      logger.info({ [name]: 'SECRET' }, 'one');
    for (const said of ['basic SECRET', '/?x-password=SECRET&y=1', pem]) logger.info({}, said);
    const all = lines.join('');
    assert.doesNotMatch(all, /SECRET|eyJ/);
    assert.match(all, /redis:\/\/user:\[redacted\]@r:6379\/0/);
    if (format === 'json') for (const line of lines) JSON.parse(line);
  });
}

test('a URL loses its password alone', () => {
  const cases = [
    ['redis://user:p%40ss@host:6379/1', 'redis://user:[redacted]@host:6379/1'],
    ['redis://:a@b@host', 'redis://:[redacted]@host'],
    ['redis://host:6379', 'redis://host:6379'],
    [
      'redis+sentinel://u:p@a,b/main?sentinel-username=s&sentinel-password=w',
      'redis+sentinel://u:[redacted]@a,b/main?sentinel-username=s&sentinel-password=[redacted]',
    ],
    ['redis://user@host', 'redis://user@host'],
    ['redis://:a@x,redis://:b@y', 'redis://:[redacted]@y'],
    ['no url', 'no url'],
  ] as const;
  for (const [url, clean] of cases) assert.equal(redactUrl(url), clean);
});

test('paths that name a token or a key are no secrets', () => {
  const { logger, records } = recorder();
  logger.info({ tokenPath: '/var/run/token', keyFile: '/k.pem' }, 'files');
  assert.equal(records()[0].tokenPath, '/var/run/token');
  assert.equal(records()[0].keyFile, '/k.pem');
});

test('a dial is one line with all that it is found by', () => {
  const outcome = { ms: 3.2123, agentId: 'a1', sessionId: 's1', hubId: 'h1', timing: { dnsMs: 1, connectMs: 2 } };
  const [{ time: _, ...line }] = logged((events) => events.emit('dial:end', 'gateway', dial, outcome));
  assert.deepEqual(line, {
    level: 'info',
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
    dnsMs: 1,
    connectMs: 2,
  });
});

test('a failed dial warns with its RFC 9209 name, its reason and its text', () => {
  const error = new DialError('connection_refused', 'dial tcp: connect: connection refused');
  const [line] = logged((events) => events.emit('dial:end', 'agent', dial, { ms: 1, error, reason: 'error_response' }));
  assert.equal(line.level, 'warn');
  assert.equal(line.msg, 'dial failed');
  assert.deepEqual([line.error, line.reason, line.text], ['connection_refused', 'error_response', error.message]);
});

test('a caller that gave up is no warning', () => {
  const error = new DialError('connection_terminated', 'gone');
  const emit = (events: PlaneEvents) =>
    void events.emit('dial:end', 'gateway', dial, { ms: 1, error, reason: 'frontend_close' });
  assert.deepEqual(logged(emit, 0), []);
  assert.equal(logged(emit)[0].level, 'info');
});

test('where gateway and hub share a process, a dial is still one line', () => {
  const emit = (events: PlaneEvents) => {
    events.emit('dial:end', 'hub', dial, { ms: 1 });
    events.emit('dial:end', 'gateway', dial, { ms: 1 });
  };
  assert.equal(logged(emit).length, 1);
  assert.equal(logged(emit, 5).length, 2);
});

test('the life of tunnels, sessions, servers, hubs and the registry is told', () => {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const where = { sessionId: 's1', agentId: 'a1', hubId: 'h1' };
  const session: SessionInfo = { ...where, tenant: 't', identifiers, protocol: 'link', remote: 'r:1', since: 0 };
  const tunnel = { ...where, role: 'gateway', dial, since: 0, up: 5, down: 7 } as const;
  const lines = logged((events) => {
    events.emit('tunnel:close', tunnel, { ms: 10, closedBy: 'plane', error: new Error('lost') });
    events.emit('session:open', session);
    events.emit('session:drain', session);
    events.emit('session:close', session, 'rolled');
    events.emit('server:open', { address: 'x:1', serverId: 's', protocol: 'link' });
    events.emit('server:close', { address: 'x:1', serverId: 's' }, 'gone');
    events.emit('server:failure', 'x:1', 'to_server', new Error('refused'));
    events.emit('peer:open', 'h1', 'y:1');
    events.emit('peer:close', 'h1', 'y:1', 'ping');
    events.emit('peer:failure', 'h1', 'y:1', new Error('connect ECONNREFUSED'));
    events.emit('certificate', 'callers', Date.UTC(2027, 0));
    events.emit('certificate:failure', 'callers', new Error('there is no certificate (PEM) in tls.crt'));
    events.emit('registry', 'down', 'ECONNRESET');
    events.emit('registry', 'up', 'again');
  });
  assert.deepEqual(
    lines.map(({ level, msg }) => `${level} ${msg}`),
    [
      'info tunnel closed',
      'info session opened',
      'info session drains',
      'info session closed',
      'info server connected',
      'info server connection closed',
      'warn server connection failed',
      'info hub connected',
      'info hub connection closed',
      'warn hub cannot be reached',
      'info certificate in force',
      'warn certificate cannot be renewed',
      'warn registry is down',
      'info registry is up',
    ],
  );
  const { up, down, closedBy, text: reason } = lines[0];
  assert.deepEqual([up, down, closedBy, reason], [5, 7, 'plane', 'lost']);
});

test('a flood of refusals becomes a few lines and a count, for each place apart', async () => {
  const { logger, records } = recorder();
  const events = planeEvents();
  const end = logEvents(events, logger, { refusals: { most: 2, windowMs: 50 } });
  for (let i = 0; i < 100; i++) events.emit('refused', 'agent port', `10.0.0.${i}`, new Error('no TLS'));
  events.emit('refused', 'caller port', 'r', new Error('no TLS'));
  assert.equal(records().length, 3);
  const deadline = performance.now() + 5000;
  while (records().length < 4 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
  const { where, count, msg } = records()[3];
  assert.deepEqual([msg, where, count], ['more was refused', 'agent port', 98]);
  events.emit('refused', 'agent port', 'r', new Error('no TLS'));
  assert.equal(records().length, 5);
  end();
  assert.equal(records().length, 5);
});

test('dials that a limit refuses are logged a few at a time, all others one by one', () => {
  const error = (code: 'connection_limit_reached' | 'connection_refused') => new DialError(code, 'too many open files');
  const records = logged((events) => {
    for (let i = 0; i < 50; i++) {
      events.emit('dial:end', 'gateway', dial, { ms: 1, error: error('connection_limit_reached') });
      events.emit('dial:end', 'gateway', dial, { ms: 1, error: error('connection_refused') });
    }
  });
  const count = (code: string) => records.filter((record) => record.error === code).length;
  assert.deepEqual([count('connection_limit_reached'), count('connection_refused')], [10, 50]);
  const { where, count: leftOut } = records.at(-1);
  assert.deepEqual([where, leftOut], ['dials', 40]);
});

test('what flaps is told of a few times, then counted, and last comes how it stands', async () => {
  const { logger, records } = recorder();
  const events = planeEvents();
  const end = logEvents(events, logger, { flaps: { most: 3, windowMs: 50 } });
  for (let i = 0; i < 100; i++) {
    events.emit('registry', 'down', `reset ${i}`);
    events.emit('registry', 'up', 'again');
    events.emit('server:failure', '10.0.0.1:8091', 'to_server', new Error('refused'));
    events.emit('peer:failure', 'h1', 'y:1', new Error('refused'));
  }
  events.emit('server:failure', '10.0.0.2:8091', 'to_server', new Error('refused'));
  assert.equal(records().length, 10);
  const deadline = performance.now() + 5000;
  while (records().length < 16 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
  const later = records().slice(10);
  const shown = later.map(({ level, msg, of, count }) => [level, msg, of, count].filter((each) => each !== undefined));
  assert.deepEqual(shown, [
    ['warn', 'more lines were left out', 'registry', 196],
    ['info', 'registry is up'],
    ['warn', 'more lines were left out', 'server 10.0.0.1:8091', 96],
    ['warn', 'server connection failed'],
    ['warn', 'more lines were left out', 'hub h1', 96],
    ['warn', 'hub cannot be reached'],
  ]);
  events.emit('registry', 'down', 'a minute later');
  assert.equal(records().length, 17);
  end();
  assert.equal(records().length, 17);
});

test('an agent that reconnects all the time is told of by its name, whatever its sessions are called', () => {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const session = (agentId: string, sessionId: string): SessionInfo => {
    return { sessionId, agentId, hubId: 'h1', tenant: 't', identifiers, protocol: 'link', remote: 'r:1', since: 0 };
  };
  const lines = logged((events) => {
    for (let i = 0; i < 50; i++) {
      events.emit('session:open', session('a1', `s${i}`));
      events.emit('session:close', session('a1', `s${i}`), 'gone');
    }
    events.emit('session:open', session('a2', 'other'));
  });
  assert.deepEqual(
    lines.slice(10).map(({ msg, agent, session, of, count }) => [msg, agent ?? of, session ?? count]),
    [
      ['session opened', 'a2', 'other'],
      ['more lines were left out', 'agent t/a1', 89],
      ['session closed', 'a1', 's49'],
    ],
  );
});

test('lines that are not shown are not counted as left out', () => {
  const emit = (events: PlaneEvents) => {
    for (let i = 0; i < 50; i++) {
      events.emit('peer:open', 'h1', 'y:1');
      events.emit('peer:close', 'h1', 'y:1', 'ping');
    }
  };
  assert.deepEqual(logged(emit, 1), []);
  assert.equal(logged(emit).length, 12);
});
