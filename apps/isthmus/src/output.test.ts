import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { parse } from 'yaml';
import { waterfall } from './commands/dial-text.ts';
import {
  age,
  bytes,
  type Format,
  millis,
  Output,
  plural,
  statusOf,
  styleOf,
  unansweredText,
  verdictsText,
  writerOf,
} from './output.ts';
import { type Column, cut, fitted, table, widthOf, wrapped } from './table.ts';
import { TestTerminal } from './testing/test-terminal.ts';

const plain = styleOf(false);
const coloured = styleOf(true);

describe('units', () => {
  it('have as many digits as are useful', () => {
    assert.deepEqual([0, 0.4249, 7.26, 99.94, 420.4, 9_999, 12_400].map(millis), [
      ...['0.00 ms', '0.42 ms', '7.3 ms', '99.9 ms', '420 ms', '9999 ms', '12.4 s'],
    ]);
    assert.deepEqual([0, 999, 1000, 1549, 9_960, 999_499, 999_500, 12_000_000, 5e18].map(bytes), [
      ...['0 B', '999 B', '1.0 kB', '1.5 kB', '10 kB', '999 kB', '1.0 MB', '12 MB', '5000 PB'],
    ]);
    assert.deepEqual([0, 999, 59_000, 125_000, 3_600_000, 3_601_000, 1_051_200_000].map(age), [
      ...['0s', '0s', '59s', '2m5s', '1h', '1h', '12d4h'],
    ]);
    assert.deepEqual([plural(1, 'agent'), plural(0, 'agent')], ['1 agent', '0 agents']);
  });
});

describe('a table', () => {
  it('aligns its columns, names them, and leaves no cell empty', () => {
    const rows = [
      ['agent-1', '3', 'hub-1,hub-2'],
      ['b', '12', ''],
    ];
    assert.equal(
      table(['agent', { name: 'tunnels', right: true }, 'hubs'], rows),
      ['AGENT     TUNNELS   HUBS', 'agent-1         3   hub-1,hub-2', 'b              12   -', ''].join('\n'),
    );
  });

  it('is aligned the same with and without colours', () => {
    const rows = (style: typeof plain) => [
      [style.good('yes'), 'a'],
      [style.bad('no answer'), 'b'],
    ];
    const stripped = stripVTControlCharacters(table(['ready', 'x'], rows(coloured)));
    assert.equal(stripped, table(['ready', 'x'], rows(plain)));
  });
});

describe('a text from elsewhere', () => {
  const told = 'gone\u001b[2J\nisthmus: all is well\u202e\u009b';
  const shown = /^gone\\u\{1b\}\[2J\\u\{a\}isthmus: all is well\\u\{202e\}\\u\{9b\}\n/;
  const view = { text: told, unanswered: [{ member: 'gw-1', address: 'a:1', reason: told }] };
  const printed = async (format: Format, print: (output: Output) => void) => {
    const terminal = new TestTerminal([], { colours: true });
    print(new Output(terminal, format, await writerOf(format)));
    return terminal;
  };

  it('does nothing to the terminal, and begins no line', async () => {
    for (const print of [
      (output: Output) => output.show(view, ({ text }) => `${text}\n`),
      (output: Output) => output.line(view, ({ text }) => text),
      (output: Output) => void output.answers(view, ({ text }) => `${text}\n`),
    ]) {
      const { stdout } = await printed('table', print);
      assert.match(stdout, shown);
      assert.match(stdout, /^[\n\P{C}]*$/u);
    }
    const { stderr } = await printed('table', (output) => output.remark(told));
    assert.match(stderr.replace(/^isthmus: /, ''), shown);
  });

  it('keeps its value for programs, and is escaped for the terminal', async () => {
    const json = (await printed('json', (output) => output.show(view, () => ''))).stdout;
    assert.deepEqual(JSON.parse(json), view);
    const yaml = (await printed('yaml', (output) => output.show(view, () => ''))).stdout;
    assert.deepEqual(parse(yaml), view);
    for (const document of [json, yaml]) assert.match(document, /^[\n\P{C}]*$/u);
  });
});

describe('a waterfall', () => {
  it('draws each phase at its time and with its length', () => {
    const part = { depth: 1, detail: '', failed: false };
    const phases = [
      { ...part, name: 'gateway', depth: 0, startMs: 0, ms: 8 },
      { ...part, name: 'attempt', startMs: 0, ms: 2, detail: 'agent-1: failed', failed: true },
      { ...part, name: 'attempt', startMs: 2, ms: 6, detail: 'agent-2' },
      { ...part, name: 'dns', depth: 2, startMs: 5, ms: 0.01 },
    ];
    assert.equal(
      waterfall(phases, undefined, 16, plain),
      [
        'gateway      8.0 ms  ████████████████',
        '  attempt    2.0 ms  ████              agent-1: failed',
        '  attempt    6.0 ms      ████████████  agent-2',
        '    DNS     0.01 ms            ▏',
        '',
      ].join('\n'),
    );
  });

  it('draws something for a dial that took no time', () => {
    const phase = { name: 'a', depth: 0, startMs: 0, ms: 0, detail: '', failed: false };
    assert.equal(waterfall([phase], undefined, 8, plain), 'a   0.00 ms  ▏\n');
  });
});

describe('output', () => {
  it('is JSON for programs, without colours, on any terminal', () => {
    const terminal = new TestTerminal([], { interactive: true, colours: true });
    const output = new Output(terminal, 'json');
    output.show({ a: 1 }, () => 'text');
    output.line({ b: 2 }, () => 'text');
    assert.equal(terminal.stdout, '{\n  "a": 1\n}\n{"b":2}\n');
    assert.equal(output.style.bad('x'), 'x');
  });

  it('breaks prose where the terminal is narrow, and no row of a table, nor what a program reads', () => {
    const prose = 'a hub is not reached, and nobody knows why it is away';
    const rows = table(['agent', 'why'], [['agent-1', 'a name that is long, and stays in its own line']]);
    const shown = (interactive: boolean) => {
      const terminal = new TestTerminal([], { interactive, columns: 20 });
      new Output(terminal, 'table').show({}, () => `${prose}\n${rows}`);
      return terminal.stdout;
    };
    assert.equal(shown(false), `${prose}\n${rows}`);
    const lines = ['a hub is not', '  reached, and', '  nobody knows why', '  it is away'];
    assert.equal(shown(true), `${lines.join('\n')}\n${rows}`);
  });

  it('breaks no command in it that people paste', () => {
    const commands = [
      'isthmus quarantine edge --tenant acme --lift',
      'isthmus dial 10.20.3.4:10250 --tenant acme',
      'kubectl config set-credentials me --token=TOKEN',
      'ACL SETUSER name ~{isthmus}:* +get +set +hset',
      'CONFIG SET maxmemory-policy noeviction',
    ];
    const terminal = new TestTerminal([], { interactive: true, columns: 30 });
    const output = new Output(terminal, 'table');
    for (const command of commands) {
      const todo = `when the reason of it is gone: ${command}, or read in its log what it says`;
      output.show({}, () => `${todo}\n`);
      output.show({}, (_, style) => verdictsText([{ name: 'agents', outcome: 'warn', detail: 'x', todo }], style));
    }
    for (const command of commands) assert.equal(terminal.stdout.split(command).length, 3, command);
    const broken = terminal.stdout.split('\n').filter((line) => line.length > 30);
    assert.ok(broken.every((line) => commands.some((command) => line.includes(command))));
  });

  it('has colours only on a terminal', () => {
    assert.equal(new Output(new TestTerminal([], { colours: true }), 'table').style.bad('x'), '\u001b[31mx\u001b[0m');
    assert.equal(new Output(new TestTerminal([]), 'table').style.bad('x'), 'x');
  });
});

describe('members that did not answer', () => {
  const silent = [{ member: 'hub-1', address: '10.0.0.1:8095', reason: 'no answer within 5 s' }];

  it('are named with the reason', () => {
    assert.equal(unansweredText([]), '');
    assert.equal(
      unansweredText(silent),
      '\n1 member did not answer:\n  hub-1 at 10.0.0.1:8095: no answer within 5 s\n',
    );
  });

  it('make the exit status 3, unless something is wrong', () => {
    assert.deepEqual([statusOf(false, []), statusOf(false, silent), statusOf(true, silent)], [0, 3, 1]);
  });
});

const columns: readonly Column[] = [
  { name: 'agent', least: 6 },
  { name: 'zone', drop: 1 },
  { name: 'hubs', drop: 2 },
  { name: 'pid', wide: true },
];
const rows = [['a-long-name', 'west', 'hub-1', '77']];
const at = (width: number, wide = false) => {
  const { columns: shown, rows: cells } = fitted({ columns, rows }, { columns: width, wide });
  return [shown.map(({ name }) => name).join(), cells[0]?.join()];
};

describe('a table on a terminal', () => {
  it('cuts cells before it leaves out columns, the least important first', () => {
    assert.deepEqual(at(26), ['agent,zone,hubs', 'a-long-name,west,hub-1']);
    assert.deepEqual(at(24), ['agent,zone,hubs', 'a-long-n…,west,hub-1']);
    assert.deepEqual(at(20), ['agent,hubs', 'a-long-name,hub-1']);
    assert.deepEqual(at(10), ['agent', 'a-long-na…']);
    assert.deepEqual(at(1), ['agent', 'a-lon…'], 'what stays takes its room, however little there is');
  });

  it('has all columns with -o wide', () => {
    assert.deepEqual(at(10, true), ['agent,zone,hubs,pid', 'a-long-name,west,hub-1,77']);
  });

  it('cuts nothing for programs that read it, except what is always too long', () => {
    assert.deepEqual(at(Number.POSITIVE_INFINITY), ['agent,zone,hubs', 'a-long-name,west,hub-1']);
    const long = [{ name: 'reaches', most: 10 }];
    assert.equal(table(long, [['x'.repeat(50)]]), 'REACHES\nxxxxxxxxx…\n');
  });
});

describe('a text', () => {
  const { bad } = styleOf(true);

  it('is cut by what is seen, and keeps its colours', () => {
    assert.equal(widthOf(bad('lost')), 4);
    assert.deepEqual([cut(bad('lost'), 4), cut(bad('lost'), 3)], [bad('lost'), bad('lo…')]);
    assert.equal(cut(`${bad('ab')}cdef`, 4), `${bad('ab')}c…`);
    assert.equal(cut(`${bad('abcd')} and more`, 3), bad('ab…'));
  });

  it('is broken at spaces', () => {
    assert.deepEqual(wrapped('connect to the hub', 11, '  '), ['connect to', '  the hub']);
    assert.deepEqual(wrapped('', 10), ['']);
  });
});
