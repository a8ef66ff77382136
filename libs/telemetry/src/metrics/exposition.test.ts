import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { type Family, formatFor, OPEN_METRICS, TEXT } from './exposition.ts';
import { Families, Series } from './families.ts';
import { server } from './testing.ts';

const exemplar = { labels: { trace_id: 'abc' }, value: 0.02, timestamp: 1_700_000_000.5 };

const families: readonly Family[] = [
  { name: 'a_total', type: 'counter', help: 'A \\ and\nb.', samples: [{ labels: {}, value: 3 }] },
  { name: 'b_count', type: 'counter', help: 'B.', samples: [{ labels: { x: '"\\\n' }, value: 1 }] },
  {
    name: 'c',
    type: 'histogram',
    help: 'C.',
    samples: [
      {
        labels: { y: 'z' },
        value: 0.5,
        buckets: [
          { le: 0.00001, count: 1, exemplar },
          { le: Number.POSITIVE_INFINITY, count: 2 },
        ],
      },
    ],
  },
];

test('text format 0.0.4', () => {
  assert.equal(
    TEXT.render(families),
    [
      '# HELP a_total A \\\\ and\\nb.\n# TYPE a_total counter\na_total 3\n',
      '# HELP b_count B.\n# TYPE b_count counter\nb_count{x="\\"\\\\\\n"} 1\n',
      '# HELP c C.\n# TYPE c histogram\nc_bucket{le="1e-05",y="z"} 1\nc_bucket{le="+Inf",y="z"} 2\nc_sum{y="z"} 0.5\nc_count{y="z"} 2\n',
    ].join('\n'),
  );
});

test('OpenMetrics: counter families drop _total, counters without it have the type unknown, and exemplars are shown', () => {
  assert.equal(
    OPEN_METRICS.render(families),
    [
      '# HELP a A \\\\ and\\nb.\n# TYPE a counter\na_total 3\n',
      '# HELP b_count B.\n# TYPE b_count unknown\nb_count{x="\\"\\\\\\n"} 1\n',
      '# HELP c C.\n# TYPE c histogram\n',
      'c_bucket{le="1e-05",y="z"} 1 # {trace_id="abc"} 0.02 1700000000.500\nc_bucket{le="+Inf",y="z"} 2\n',
      'c_sum{y="z"} 0.5\nc_count{y="z"} 2\n',
      '# EOF\n',
    ].join(''),
  );
});

test('a scraper gets OpenMetrics if it asks for it, and the text format in all other cases', () => {
  const prometheus2 =
    'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1';
  const prometheus3 =
    'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2';
  const protobuf = 'application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited';
  const cases: [accept: string | undefined, open: boolean][] = [
    ['application/vnd.google.protobuf', false],
    [`${protobuf},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1`, true],
    [protobuf, false],
    [undefined, false],
    ['', false],
    ['*/*', false],
    ['text/html, */*;q=0.8', false],
    ['text/plain;version=0.0.4', false],
    ['application/openmetrics-text', true],
    ['Application/OpenMetrics-Text; Version="1.0.0"', true],
    ['application/openmetrics-text;version=0.0.1', false],
    ['application/openmetrics-text;q=0', false],
    ['application/openmetrics-text;q=x', false],
    ['application/openmetrics-text;q=0.3,text/plain;q=0.5', false],
    [prometheus2, true],
    [prometheus3, true],
  ];
  for (const [accept, open] of cases) assert.equal(formatFor(accept), open ? OPEN_METRICS : TEXT, String(accept));
});

test('the page has the format that its content type names', async () => {
  const { events, metrics } = server();
  events.emit('dial:unasked');
  assert.equal((await metrics.render()).contentType, 'text/plain; version=0.0.4; charset=utf-8');
  const { contentType, body } = await metrics.render('application/openmetrics-text');
  assert.equal(contentType, 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  assert.ok(body.endsWith('\n# EOF\n'));
  assert.match(body, /^# TYPE konnectivity_network_proxy_server_dial_failure_count unknown$/m);
  assert.match(body, /^konnectivity_network_proxy_server_dial_failure_count\{reason="unrecognized_response"\} 1$/m);
});

test('all who ask for a page before it is begun get the same one, and nobody gets one that was begun before', async () => {
  let read = 0;
  const families = new Families('x_');
  families.measured('reads', 'R.', () => ++read);
  const asked = (accept?: string) => Array.from({ length: 500 }, () => families.render(accept));
  const all = [...asked(), ...asked('application/openmetrics-text')];
  const bodies = (await Promise.all(all)).map(({ body }) => /^x_reads (.*)$/m.exec(String(body))?.[1]);
  assert.deepEqual([read, bodies.filter((body) => body === '1').length], [2, 500]);
  // While one is rendered, another begins behind it.
  families.append(async () => {
    if (read === 3) again.push(...asked());
    return [];
  });
  const again: ReturnType<typeof families.render>[] = [families.render()];
  await again[0];
  for (const { body } of await Promise.all(again.slice(1))) assert.match(String(body), /^x_reads 4$/m);
  assert.equal(read, 4);
});

test('pages that are asked for in a loop take a part of the time, and one that fails holds up no other', async (t) => {
  let now = 10_000;
  t.mock.method(performance, 'now', () => now);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const families = new Families('x_');
  let begun = 0;
  families.append(async () => {
    begun++;
    now += 50;
    if (begun > 5) throw new Error('not this one');
    return [];
  });
  // Each of 50 ms uses 500 ms of the burst.
  for (let count = 0; count < 5; count++) await families.render();
  const waits = [families.render(), families.render('application/openmetrics-text')];
  for (const each of waits) {
    const refused = assert.rejects(each, /not this one/);
    await immediate();
    const before = begun;
    now += 500;
    t.mock.timers.tick(500);
    await refused;
    assert.equal(begun, before + 1);
  }
});

test('after a page that took long, the next one waits for two seconds at most', async (t) => {
  let now = 10_000;
  t.mock.method(performance, 'now', () => now);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const families = new Families('x_');
  families.append(async () => {
    now += 5000;
    return [];
  });
  await families.render();
  const next = families.render();
  await immediate();
  t.mock.timers.tick(2000);
  await next;
});

test('no two families in OpenMetrics have the same name', async () => {
  const { body } = await server().metrics.render('application/openmetrics-text');
  const names = [...body.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1]);
  assert.deepEqual(names, [...new Set(names)]);
});

test('labels with the same values are one series, whatever their order and their type', () => {
  const series = new Series(['a', 'b'], () => ({ value: 0 }));
  series.of({ a: 'x', b: 1 }).value++;
  series.of({ b: '1', a: 'x' }).value += 2;
  series.of({ a: 'x","1', b: '' }).value--;
  assert.deepEqual(
    Array.from(series, ([labels, { value }]) => [labels, value]),
    [
      [{ a: 'x', b: 1 }, 3],
      [{ a: 'x","1', b: '' }, -1],
    ],
  );
});

test('a family without labels always has its line, one with labels has lines only for labels that were used', async () => {
  const families = new Families('x_');
  families.counter('alone_total', 'A.');
  families.gauge('labelled{l}', 'B.').of({ l: 'y' }).value = 2.5;
  families.histogram('unused_seconds{l}', 'C.', [1]);
  const { body } = await families.render();
  const lines = body
    .toString()
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  assert.deepEqual(lines, ['x_alone_total 0', 'x_labelled{l="y"} 2.5']);
});
