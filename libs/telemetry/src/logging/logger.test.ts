import assert from 'node:assert/strict';
import { test } from 'node:test';
import { costsItsLength } from '@isthmus/runtime/testing';
import { recorder } from '../testing/events.ts';
import { levelOf, redactLine, redactUrl, textLine } from './logger.ts';

/** Returns a text line without its time. */
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

test('text from a peer cannot start a line or move the cursor', () => {
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

test('a fatal line is written immediately, whatever happens to the process', () => {
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

const HEAD = '"level":"info","time":"2026-11-21T10:00:00.000Z","name":"gateway"';

function lineOf(fields: string, msg = 'dial established'): string {
  return textLine(`{${HEAD},${fields}"msg":"${msg}"}\n`);
}

const START = '2026-11-21T10:00:00.000Z info  gateway  dial established';

test('a line starts with its time, level, name and message', () => {
  assert.equal(lineOf(''), `${START}\n`);
});

test('words, numbers and literals are shown as they are, and texts in quotes', () => {
  const fields =
    '"destination":"10.0.0.1:443","ms":3.2,"up":0,"drop":-1e-7,"ok":true,"none":null,"text":"a, b: {c}","empty":"",';
  const shown = 'destination=10.0.0.1:443 ms=3.2 up=0 drop=-1e-7 ok=true none=null text="a, b: {c}" empty=""';
  assert.equal(lineOf(fields), `${START} ${shown}\n`);
});

test('a value with an equals sign is in quotes', () => {
  assert.equal(lineOf('"where":"a=b",'), `${START} where="a=b"\n`);
});

for (const [what, field, shown] of [
  ['a nested value', '"names":["a","b"],"after":1,', 'names=["a","b"] after=1'],
  ['an escaped value', '"text":"say \\"no\\"",', 'text="say \\"no\\""'],
  ['a control character', '"text":"\\u001b[31mred",', 'text="\\u001b[31mred"'],
  ['a mark of direction', '"remote":"\\u202eg",', 'remote="\\u202eg"'],
  ['letters of other scripts', '"name2":"жук","text":"ж у",', 'name2=жук text="\\u0436 \\u0443"'],
] as const) {
  test(`${what} is shown`, () => {
    const expected = `${START} ${shown}\n`.replace('\\u0436 \\u0443', 'ж у');
    assert.equal(lineOf(field), expected);
  });
}

test('an error is its message, and its stack follows the line', () => {
  const line = textLine(
    `{"level":"error","time":"t","name":"hub","err":{"message":"broken","stack":"Error: broken\\n at x"},"msg":"fault"}\n`,
  );
  assert.equal(line, 't error hub  fault err=broken\n   at x\n');
});

test('a value that looks like the end of the line is no end', () => {
  assert.equal(lineOf('"text":"}",'), `${START} text=}\n`);
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

test('what holds another secret’s beginning is taken out as a whole', () => {
  const [begin, end] = ['-----BEGIN PRIVATE KEY-----', '-----END PRIVATE KEY-----'];
  const cases = [
    ['Bearer eyJhbGciOi.abcd.defg.ghij.jklm, twice', 'Bearer [redacted], twice'],
    ['Bearer eyJhbGc.abc.de/f+SECRET==', 'Bearer [redacted]'],
    [`${begin} SECRET, ${begin} SECRET ${end}.`, '[redacted].'],
    [`{"pem":"${begin} SECRET","next":1}`, '{"pem":"[redacted]","next":1}'],
  ] as const;
  for (const [said, clean] of cases) assert.equal(redactLine(said), clean);
});

test('a URL loses only its password', () => {
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

test('a text that looks like many beginnings of secrets costs what its length costs', () => {
  for (const beginning of ['://a:', 'eyJ', 'eyJ.', '://a@', '?password', '-----BEGIN PRIVATE KEY-----']) {
    const line = JSON.stringify({ msg: beginning.repeat(250_000) });
    costsItsLength(() => redactLine(line));
  }
});

test('paths that name a token or a key are not secrets', () => {
  const { logger, records } = recorder();
  logger.info({ tokenPath: '/var/run/token', keyFile: '/k.pem' }, 'files');
  assert.equal(records()[0].tokenPath, '/var/run/token');
  assert.equal(records()[0].keyFile, '/k.pem');
});

test('a sentence about bearer tokens keeps its words', () => {
  const { logger, records } = recorder();
  const sentences = [
    'token was not accepted: lookup failed: [invalid bearer token, Token has expired]',
    'invalid bearer token',
    'Bearer tokens are not accepted here.',
    'bearer authentication is off; basic auth too',
    'want a bearer token: none came',
    'the bearer token "expired"',
    'Basic authentication',
  ];
  for (const sentence of sentences) logger.warn({ text: sentence }, sentence);
  const said = records().map(({ text, msg }) => [text, msg]);
  assert.deepEqual(
    said,
    sentences.map((sentence) => [sentence, sentence]),
  );
});

test('a credential after its scheme is a secret, whatever it looks like', () => {
  const { logger, records } = recorder();
  const cases = [
    ['Authorization: Bearer hunter', 'Authorization: Bearer [redacted]'],
    ['bearer tokenofmine', 'bearer [redacted]'],
    ['Bearer token-1', 'Bearer [redacted]'],
    ['Bearer token.of.mine', 'Bearer [redacted]'],
    ['Bearer is/it+this==', 'Bearer [redacted]'],
    ['Basic dXNlcjpwYXNz, then more', 'Basic [redacted], then more'],
    ['sent "Bearer abc" twice', 'sent "Bearer [redacted]" twice'],
    ['BEARER abc', 'BEARER [redacted]'],
    ['Bearer  abc\nBearer def', 'Bearer [redacted]\nBearer [redacted]'],
  ] as const;
  for (const [text] of cases) logger.warn({}, text);
  assert.deepEqual(
    records().map(({ msg }) => msg),
    cases.map(([, clean]) => clean),
  );
});

test('the last lines are kept as JSON, whatever the format, without secrets and without lines below the level', () => {
  for (const format of ['text', 'json'] as const) {
    const { lines: written, logger } = recorder({ format });
    logger.info({ url: 'redis://user:word@redis' }, 'first');
    logger.debug({}, 'too fine');
    logger.child({ part: 'x' }).warn({}, 'second');
    const lines = [...logger.recent].map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ level, msg, url, part }) => [level, msg, url, part]),
      [
        ['info', 'first', 'redis://user:[redacted]@redis', undefined],
        ['warn', 'second', undefined, 'x'],
      ],
    );
    assert.equal(written.length, 2);
  }
});

test('a thousand lines are kept, but only the beginning of a very long one', () => {
  const { logger } = recorder();
  for (let index = 0; index < 1005; index++) logger.info({ index }, 'line');
  logger.warn({ extra: 'y'.repeat(20_000) }, 'x'.repeat(20_000));
  const lines = [...logger.recent];
  assert.deepEqual([lines.length, logger.recent.forgotten, JSON.parse(lines[0] ?? '').index], [1000, 6, 6]);
  const { level, msg, characters } = JSON.parse(lines.at(-1) ?? '');
  assert.deepEqual([level, msg], ['warn', 'x'.repeat(4000)]);
  assert.ok(characters > 40_000);
});

test('a level that is set at run time applies at once', () => {
  const { logger } = recorder();
  logger.level = logger.levelOf(6);
  logger.debug({}, 'now it shows');
  assert.equal([...logger.recent].length, 1);
});
