import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LINES, linesByName } from './lines.ts';
import { PATHS } from './paths.ts';
import { type Book, figureOf, type Run } from './store.ts';
import { figureTable, howMade, upstreamTable } from './tables.ts';

const made = { at: '', node: '', cores: 2, processor: '', commit: '', windowMs: 1, rounds: 1 };

function book(...runs: readonly [line: string, contender: string, figures: Run['figures']][]): Book {
  const all = runs.map(([line, contender, figures], round) => ({ line, contender, figures, round, errors: {} }));
  return { made, runs: all };
}

test('each line has a unique name', () => {
  const all = [...LINES, ...linesByName(100), ...PATHS];
  assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
});

test('a figure is the median of the rounds that have it', () => {
  const rounds = book(
    ['bulk-x1', 'direct', { gb_per_s: 3 }],
    ['bulk-x1', 'direct', {}],
    ['bulk-x1', 'direct', { gb_per_s: 1 }],
    ['bulk-x1', 'grpc-uds', { gb_per_s: 9 }],
    ['bulk-x1', 'direct', { gb_per_s: 2 }],
  );
  assert.equal(figureOf(rounds, 'bulk-x1', 'direct', 'gb_per_s'), 2);
  assert.equal(figureOf(rounds, 'bulk-x32', 'direct', 'gb_per_s'), undefined);
});

test('the table has a row for each figure that any contender has', () => {
  const rows = figureTable(
    book(
      ['bulk-x1', 'grpc-uds', { gb_per_s: 0.25, plane_cpu_s_per_gb: 4.5 }],
      ['bulk-x1', 'relays-2', { gb_per_s: 1 }],
      ['bulk-x1', 'direct', { gb_per_s: 4 }],
    ),
  );
  assert.deepEqual(rows, [
    ['line', 'figure', 'grpc-uds', 'relays-2', 'direct'],
    ['bulk ×1', 'GB/s', '0.25', '1.00', '4.00'],
    ['bulk ×1', 'plane CPU s/GB', '4.50', '', ''],
  ]);
});

test('figures are compared to upstream with the same front, by planebench if that loaded both', () => {
  const all = book(
    ['bulk-x1', 'connect-uds', { gb_per_s: 0.5 }],
    ['bulk-x1', 'anp-connect-uds', { gb_per_s: 1 }],
    ['bulk-x1', 'connect-uds (planebench)', { gb_per_s: 0.6 }],
    ['bulk-x1', 'anp-connect-uds (planebench)', { gb_per_s: 0.2 }],
    ['stall-x1', 'connect-uds', { down_kept: 1 }],
    ['stall-x1', 'anp-connect-uds', { down_kept: 0.5 }],
  );
  assert.deepEqual(upstreamTable([all]), [
    ['line', 'figure', 'connect-uds'],
    ['bulk ×1', 'GB/s', '3.00'],
  ]);
});

test('ratios to upstream are ranges over all runs that have them', () => {
  const [quiet, busy] = [0.2, 0.3].map((own) =>
    book(
      ['bulk-x1', 'connect-uds', { gb_per_s: own }],
      ['bulk-x1', 'anp-connect-uds', { gb_per_s: 0.1 }],
      ['ping-x1', 'connect-uds', { p50_us: 50 }],
      ['ping-x1', 'anp-connect-uds', { p50_us: 100 }],
    ),
  ) as [Book, Book];
  const withoutOurs = book(['bulk-x1', 'anp-connect-uds', { gb_per_s: 0.1 }]);
  assert.deepEqual(
    upstreamTable([busy, withoutOurs, quiet]).map((row) => row.slice(0, 3)),
    [
      ['line', 'figure', 'connect-uds'],
      ['bulk ×1', 'GB/s', '2.00–3.00'],
      ['ping ×1', 'p50 µs', '0.50'],
    ],
  );
});

test('a run says on which machine it was made, and how busy that was', () => {
  const made = {
    at: '2026-11-25T04:40:00.000Z',
    node: '20.1.0',
    cores: 2,
    processor: 'P',
    commit: 'abc',
    windowMs: 1600,
    rounds: 3,
  };
  const said = '`npm run bench`, 2026-11-25, commit abc, Node 20.1.0, 2 cores (P)';
  assert.equal(howMade(made), `${said}; 1.6 s a measurement, median of 3.`);
  assert.equal(
    howMade({ ...made, rounds: 1, busy: 0.254 }),
    `${said}, of which others used 25 % just before; 1.6 s a measurement, once.`,
  );
});
