import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { styleOf } from '../output.ts';
import { type AnsweredDial, DialsOfMinute, type Followed } from './watch-dials.ts';
import {
  AT_START,
  type Controls,
  chosen,
  dialLine,
  footer,
  HELP,
  keysIn,
  type Picture,
  picture,
  pressed,
  sparkline,
} from './watch-screen.ts';

const NOW = Date.parse('2026-05-01T12:00:30.500Z');

function dial(id: string, secondsAgo: number, ms: number, more: Partial<AnsweredDial> = {}): AnsweredDial {
  const started = new Date(NOW - secondsAgo * 1000 - ms).toISOString();
  return {
    gateway: 'gw-1',
    dial: id,
    started,
    tenant: 'default',
    destination: '10.0.0.5:10250',
    caller: 'uds',
    ok: true,
    ms,
    agent: 'node-a',
    hub: 'hub-1',
    attempts: 1,
    parkedMs: 0,
    trace: '',
    ...more,
  };
}

const REFUSED = { code: 'connection_refused', text: 'dial tcp 10.0.0.9:1: connect: connection refused' };

function some(): DialsOfMinute {
  const recent = new DialsOfMinute();
  for (let index = 0; index < 20; index++) recent.add(dial(`d${index}`, 2 + index / 10, 5));
  recent.add(dial('slow', 3, 420, { attempts: 2, tenant: 'team-a' }));
  recent.add(dial('bad', 4, 1, { ok: false, error: REFUSED, destination: '10.0.0.9:1' }));
  return recent;
}

describe('recent dials', () => {
  it('count each dial once, however often it is reported', () => {
    const recent = some();
    recent.add(dial('slow', 3, 420));
    assert.deepEqual(recent.rates(NOW), { dials: 2.2, failed: 0.1 });
    assert.equal(
      recent.perSecond(NOW, 60).reduce((sum, each) => sum + each, 0),
      22,
    );
    assert.deepEqual(
      recent.slowest(2).map(({ dial: id }) => id),
      ['slow', 'd0'],
    );
    assert.deepEqual(
      recent.tenants().map(({ tenant, dials, failed, p50, p99 }) => [tenant, dials, failed, p50, p99]),
      [
        ['default', 21, 1, 5, 5],
        ['team-a', 1, 0, 420, 420],
      ],
    );
    assert.deepEqual(
      recent.errors().map(({ code, count }) => [code, count]),
      [['connection_refused', 1]],
    );
  });

  it('are forgotten after a minute, and bounded before that', () => {
    const recent = some();
    recent.forget(NOW + 70_000);
    assert.deepEqual([recent.slowest(5), recent.errors()], [[], []]);
    for (let index = 0; index < 21_000; index++) recent.add(dial(`n${index}`, 1, 1));
    assert.equal(recent.tenants()[0]?.dials, 20_000);
    assert.equal(Math.max(...recent.perSecond(NOW, 60)), 21_000);
  });
});

const member = (id: string, roles: Followed['member']['roles']): Followed['member'] => {
  return { id, roles, address: `${id}:8095`, hubId: '', version: '0.1.0', zone: '' };
};
const load = {
  ready: true,
  admission: 'open' as const,
  sessions: 4,
  tunnels: 12,
  pending: 1,
  parked: 0,
  dialsPerSecond: 2.2,
  failuresPerSecond: 0.1,
};

describe('the live screen', () => {
  const members: Followed[] = [
    { member: member('gw-1', ['gateway']), load },
    { member: member('gw-2', ['gateway']), load, lost: { reason: 'connect ECONNREFUSED', since: NOW - 3000 } },
    { member: member('hub-1', ['hub']), load },
  ];

  const at = (columns: number, more: Partial<Picture> = {}): Picture => {
    const room = { columns, rows: 40 };
    return { now: NOW, members, recent: some(), unheard: 0, controls: AT_START, room, ...more };
  };
  const drawn = (columns: number, more?: Partial<Picture>) => picture(at(columns, more), styleOf(false));

  it('shows rates, members, errors, the slowest dials and tenants', () => {
    const lines = drawn(120);
    assert.equal(lines[0], '12:00:30Z  3 members  1 lost  2.2 dials/s  0.1 failed/s  24 tunnels');
    const shown = lines.join('\n');
    assert.match(shown, /^gw-1 +gateway +2\.2 +0\.1 +1 +0 +12 +- +answers$/m);
    assert.match(shown, /^hub-1 +hub +2\.2 +0\.1 +1 +0 +12 +4 +answers$/m, 'sessions are those that a hub holds');
    assert.match(shown, /^gw-2 +gateway +- .* lost 3s$/m);
    assert.match(shown, /^ {2}gw-2: connect ECONNREFUSED$/m);
    assert.match(shown, /^ +1 +connection_refused +10\.0\.0\.9:1 +dial tcp 10\.0\.0\.9:1: connect/m);
    assert.match(shown, /^420 ms +10\.0\.0\.5:10250 +node-a +hub-1 +2 +- +3s +slow/m);
    assert.match(shown, /^team-a +1 +0 +420 ms +420 ms$/m);
  });

  it('has a page of keys that fits 80 columns', () => {
    for (const line of HELP) assert.ok(line.length <= 80, line);
  });

  it('tells one that drains, or is not ready, from one that is well', () => {
    const [drains, unready] = [
      { ...load, ready: false, admission: 'draining' as const },
      { ...load, ready: false },
    ];
    const told = drawn(120, {
      members: [
        { member: member('hub-1', ['hub']), load: drains },
        { member: member('hub-2', ['hub']), load: unready },
      ],
    }).join('\n');
    assert.match(told, /^hub-1 .* draining$/m);
    assert.match(told, /^hub-2 .* not ready$/m);
  });

  it('fits its width, and never without the state, the newest second and the reason', () => {
    for (const columns of [60, 80, 100, 120, 200]) {
      const busy = some();
      busy.add(
        dial('long', 1, 9, {
          destination: `${'x'.repeat(10_000)}:1`,
          agent: 'node-a'.repeat(99),
          ok: false,
          error: REFUSED,
        }),
      );
      const lines = drawn(columns, { recent: busy });
      const longest = lines.reduce((most, line) => (line.length > most.length ? line : most));
      assert.ok(longest.length <= columns, `${columns}: ${longest.length}: ${longest}`);
      const shown = lines.join('\n');
      assert.match(shown, /^MEMBER .* STATE$/m, `${columns}`);
      assert.match(shown, /^dials\/s, last \d+ s .*▁ {2}at most \d+$/m, `${columns}`);
      assert.match(shown, /connect: connection refused$|connect:\n +connection refused$/m, `${columns}`);
    }
    assert.match(drawn(200).join('\n'), / TENANT +GATEWAY +CALLER$/m, 'a wide screen shows more');
  });

  it('lists as many dials as there are rows, the slowest or the newest', () => {
    const rows = (lines: readonly string[]) => lines.filter((line) => / node-a /.test(line));
    assert.equal(rows(drawn(120, { room: { columns: 120, rows: 60 } })).length, 22);
    assert.equal(rows(drawn(120, { room: { columns: 120, rows: 10 } })).length, 5);
    const newest = drawn(120, { controls: { ...AT_START, dials: 'newest' } });
    assert.match(rows(newest)[0] ?? '', / d0 /);
  });

  it('orders members, lost ones first', () => {
    const busy = { member: member('gw-9', ['gateway']), load: { ...load, dialsPerSecond: 99 } } satisfies Followed;
    const shown = drawn(120, { members: [...members, busy], controls: { ...AT_START, members: 'dials' } });
    const names = shown.flatMap((line) => /^(\S+) +(?:gateway|hub) /.exec(line)?.[1] ?? []);
    assert.deepEqual(names, ['gw-2', 'gw-9', 'gw-1', 'hub-1']);
  });

  it('shows the same in colours', () => {
    const told = at(120, { unheard: 3 });
    assert.equal(
      stripVTControlCharacters(picture(told, styleOf(true)).join('\n')),
      picture(told, styleOf(false)).join('\n'),
    );
  });

  it('is shown before there is a dial', () => {
    const shown = drawn(80, { members: [], recent: new DialsOfMinute() }).join('\n');
    assert.match(shown, /0\.0 dials\/s[\s\S]*No dial failed in the last minute/);
  });

  it('draws seconds as bars, and nothing for none', () => {
    assert.equal(sparkline([0, 1, 4, 8]), ' ▁▄█');
    assert.equal(sparkline([0, 0]), '  ');
  });
});

describe('a line of a dial', () => {
  it('says when, where, through whom, how long and with what result', () => {
    assert.equal(
      dialLine(dial('x', 0, 7, { attempts: 2 })),
      '2026-05-01T12:00:30.493Z gw-1 default 10.0.0.5:10250 through node-a at hub-1 7.0 ms established, 2 attempts',
    );
    const failed = dial('x', 0, 0, { ok: false, error: REFUSED, agent: '', hub: '' });
    assert.match(dialLine(failed), / default 10\.0\.0\.5:10250 0\.00 ms failed: connection_refused: dial tcp /);
  });
});

/** What is set after these keys, or undefined if one of them ended the screen. */
function after(keys: string, from: Controls = AT_START): Controls | undefined {
  return keysIn(keys).reduce<Controls | undefined>((controls, key) => controls && pressed(controls, key), from);
}

describe('keys of the live screen', () => {
  it('quit, pause, filter and sort', () => {
    assert.deepEqual([after('q'), after('\u0003'), after('/q\u0003')], [undefined, undefined, undefined]);
    assert.deepEqual([after('p')?.paused, after(' ')?.paused, after('pp')?.paused], [true, true, false]);
    assert.deepEqual([after('f')?.onlyFailed, after('ff')?.onlyFailed], [true, false]);
    assert.deepEqual([after('s')?.dials, after('ss')?.dials], ['newest', 'slowest']);
    assert.deepEqual([after('m')?.members, after('mmmm')?.members], ['dials', 'name']);
    assert.deepEqual([after('?')?.help, after('hh')?.help], [true, false]);
  });

  it('type a filter, which holds at once and can be taken back', () => {
    assert.deepEqual([after('/ab')?.filter, after('/ab')?.typing], ['ab', 'ab']);
    assert.deepEqual([after('/q s\r')?.filter, after('/ab\r')?.typing], ['qs', undefined]);
    assert.equal(after('/ab\u007f\r')?.filter, 'a');
    assert.deepEqual([after('/ab\u001b')?.filter, after('/ab\rf\u001b')], ['', AT_START]);
    assert.equal(after(`/${'x'.repeat(1000)}`)?.filter.length, 80);
  });

  it('are not the letters of arrows and function keys', () => {
    assert.deepEqual(keysIn('\u001b[Aq\u001b[15~\u001bOPp\u001b'), ['q', 'p', '\u001b']);
    assert.deepEqual(after('\u001b[A\u001bOs'), AT_START);
  });

  it('are named in the last line, with what is set', () => {
    const line = (keys: string) => footer(after(keys) ?? AT_START, { columns: 80 }, styleOf(false));
    assert.equal(line(''), 'q quit  p pause  / filter  f failed  s slowest  m by name  ? help');
    assert.match(line('pf/10.0\rs'), /^PAUSED, only failed, only with 10\.0 {3}q quit/);
    assert.equal(line('/10.'), 'Only dials with: 10._   Enter keeps it, Esc shows all');
    assert.ok(line(`/${'x'.repeat(200)}\r`).length <= 80);
  });
});

describe('a filter', () => {
  const dial = {
    destination: '10.0.0.5:10250',
    tenant: 'Acme',
    agent: 'a',
    hub: 'h',
    gateway: 'g',
    caller: 'c',
    dial: 'd',
  };
  const fine = { ...dial, ok: true } as AnsweredDial;
  const failed = { ...dial, ok: false, error: { code: 'dns_error', text: 'no such host' } } as AnsweredDial;

  it('looks at every name of a dial, in any case', () => {
    const finds = (filter: string) => [fine, failed].map((each) => chosen({ ...AT_START, filter })?.(each));
    assert.deepEqual(finds('acme'), [true, true]);
    assert.deepEqual(finds('DNS_'), [false, true]);
    assert.deepEqual(finds('nowhere'), [false, false]);
    assert.equal(chosen(AT_START), undefined);
  });

  it('can ask for failed dials only', () => {
    assert.deepEqual([fine, failed].map(chosen({ ...AT_START, onlyFailed: true }) ?? (() => true)), [false, true]);
  });
});
