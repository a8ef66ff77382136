import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Call } from './command.ts';
import { type Kind, type ListOptions, list, rowsTable } from './lists.ts';
import { EXIT, Failure, Output } from './output.ts';
import { customColumns, selector, template } from './paths.ts';
import type { Unanswered } from './plane/member.ts';
import { TestTerminal } from './testing/test-terminal.ts';

interface Pet {
  readonly pet: string;
  readonly state: string;
  readonly ageMs: number;
  readonly eats: readonly string[];
}

const rex: Pet = { pet: 'rex', state: 'ready', ageMs: 5, eats: ['bone', 'shoe'] };
const tom: Pet = { pet: 'tom', state: 'asleep', ageMs: 70, eats: [] };
const silent: Unanswered = { member: 'gw-9', address: 'gw-9:1', reason: 'gone' };

const COLUMNS = [
  { name: 'pet', of: ({ pet }: Pet) => pet },
  { name: 'state', of: ({ state }: Pet) => state },
  { name: 'age', of: ({ ageMs }: Pet) => String(ageMs), moves: true },
] as const;

/** Asks for the answers one after the other, and interrupts at the last one. */
function kindOf(
  answers: readonly (readonly Pet[])[],
  unanswered: readonly Unanswered[] = [],
  end = () => {},
): Kind<Pet> {
  let next = 0;
  return {
    name: 'pets',
    one: 'pet',
    names: ({ pet }) => [pet],
    columns: () => COLUMNS,
    labels: ({ eats }) => ({ eats }),
    async ask() {
      const items = answers[next++] ?? [];
      if (next >= answers.length) end();
      return {
        items,
        unanswered,
        more: () => ({ shop: 'main' }),
        text: (all, style) => `Pets:\n${rowsTable(COLUMNS, all, style)}`,
      };
    },
  };
}

async function listed(
  output: string,
  options: ListOptions,
  names: readonly string[] = [],
  kind = kindOf([[rex, tom]]),
) {
  const terminal = new TestTerminal([]);
  const write = output.startsWith('jsonpath=') ? (view: object) => `${template(output.slice(9))(view)}\n` : undefined;
  const call = {
    args: [names],
    options,
    terminal,
    output: new Output(terminal, output, write),
  } as unknown as Call<ListOptions>;
  const status = await list(kind, call).catch((error: Failure) => error);
  return { status, out: terminal.stdout, err: terminal.stderr };
}

describe('a list', () => {
  it('shows all, with what belongs to it, or the rows alone', async () => {
    const rows = 'rex   ready    5\ntom   asleep   70\n';
    assert.equal((await listed('table', {})).out, `Pets:\nPET   STATE    AGE\n${rows}`);
    assert.equal((await listed('table', { headers: false })).out, rows);
    assert.equal((await listed('table', { headers: false }, [], kindOf([[]]))).out, '');
  });

  it('is one document for programs, and a single object is itself', async () => {
    assert.deepEqual(JSON.parse((await listed('json', {})).out), { pets: [rex, tom], shop: 'main', unanswered: [] });
    assert.deepEqual(JSON.parse((await listed('json', {}, ['tom'])).out), tom);
    const one = await listed('json', {}, ['tom'], kindOf([[tom]], [silent]));
    assert.deepEqual([JSON.parse(one.out), one.status], [tom, EXIT.unasked]);
    assert.match(one.err, /gw-9 at gw-9:1: gone/);
  });

  it('prints names, paths and columns of choice', async () => {
    assert.equal((await listed('name', {})).out, 'pet/rex\npet/tom\n');
    assert.equal((await listed('jsonpath={.items[*].id}', {})).out, 'rex tom\n');
    assert.equal((await listed('jsonpath={.pets[1].pet} of {.shop}', {})).out, 'tom of main\n');
    assert.equal((await listed('jsonpath={.id}:{.state}', {}, ['rex'])).out, 'rex:ready\n');
    const columns = 'custom-columns=ID:.id,FIRST:.eats[0],ALL:.eats';
    assert.equal(
      (await listed(columns, {})).out,
      'ID    FIRST    ALL\nrex   bone     ["bone","shoe"]\ntom   <none>   []\n',
    );
    assert.equal((await listed('custom-columns=ID:{.id}', { headers: false })).out, 'rex\ntom\n');
  });

  it('is filtered by fields and labels', async () => {
    const names = async (options: ListOptions) => (await listed('name', options)).out.match(/(?<=\/)\w+/g) ?? [];
    assert.deepEqual(await names({ fieldSelector: 'state=ready' }), ['rex']);
    assert.deepEqual(await names({ fieldSelector: 'state!=ready,pet=tom' }), ['tom']);
    assert.deepEqual(await names({ fieldSelector: 'eats=shoe' }), ['rex']);
    assert.deepEqual(await names({ selector: 'eats=bone' }), ['rex']);
    assert.deepEqual(await names({ selector: '!eats' }), ['tom']);
    assert.deepEqual(await names({ selector: 'eats==fish' }), []);
  });

  it('says which name is not there, unless a silent member may know it', async () => {
    const { status, out } = await listed('name', {}, ['rex', 'ed']);
    assert.equal(out, 'pet/rex\n');
    assert.ok(status instanceof Failure && status.status === EXIT.wrong, String(status));
    assert.equal(status.message, 'there is no pet ed');
    const unsure = await listed('name', {}, ['ed'], kindOf([[rex]], [silent]));
    assert.ok(unsure.status instanceof Failure && unsure.status.status === EXIT.unasked);
  });
});

describe('a watched list', () => {
  async function seen(
    output: string,
    rounds: readonly (readonly Pet[])[],
    unanswered: readonly Unanswered[] = [],
    { past, limit }: Pick<Kind<Pet>, 'past'> & ListOptions = {},
  ) {
    const interrupt = new AbortController();
    const terminal = new TestTerminal([], { interrupted: interrupt.signal });
    const kind = { ...kindOf(rounds, unanswered, () => interrupt.abort()), ...(past && { past }) };
    const plane = async () => ({ meet: async () => {} });
    const call = { args: [[]], options: { watch: true, limit }, terminal, plane, output: new Output(terminal, output) };
    assert.equal(await list(kind, call as unknown as Call<ListOptions>), EXIT.good);
    return terminal.stdout;
  }
  const later = [
    { ...rex, ageMs: 9 },
    { ...tom, state: 'ready' },
  ];

  it('prints what comes, changes and goes, and not what grows older', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const tick = setInterval(() => t.mock.timers.tick(10_000), 1);
    try {
      assert.equal(
        await seen('table', [[rex, tom], later, later.slice(1), later]),
        [
          'EVENT     PET   STATE    AGE',
          'added     rex   ready    5',
          'added     tom   asleep   70',
          'changed   tom   ready    70',
          'gone      rex   ready    9',
          'added     rex   ready    9',
          '',
        ].join('\n'),
      );
      const lines = (await seen('json', [[rex], []]))
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
      assert.deepEqual(lines, [
        { event: 'added', pet: rex },
        { event: 'gone', pet: rex },
      ]);
      assert.equal(await seen('name', [[rex], [rex, tom]]), 'pet/rex\npet/tom\n');
      assert.doesNotMatch(await seen('table', [[rex], []], [silent]), /gone/, 'its member only did not answer');
      assert.equal(await seen('name', [[rex], []], [], { past: true }), 'pet/rex\n', 'forgotten, and not gone');
      const spot = { ...rex, pet: 'spot' };
      assert.equal(
        await seen(
          'name',
          [
            [rex, tom],
            [rex, tom, spot],
          ],
          [],
          { limit: 1 },
        ),
        'pet/rex\npet/spot\n',
      );
    } finally {
      clearInterval(tick);
      t.mock.timers.reset();
    }
  });
});

describe('a path', () => {
  const view = { items: [rex, tom], 'a.b': { c: true }, none: null };
  const read = (text: string) => template(text)(view);

  it('finds what kubectl finds', () => {
    const cases: readonly [string, string][] = [
      ['{.items[*].pet}', 'rex tom'],
      ['{.items[-1].pet}', 'tom'],
      ['{.items[0:1].pet}', 'rex'],
      ['{$.items[?(@.state=="asleep")].pet}', 'tom'],
      ['{.items[?(@.ageMs>5)].pet}', 'tom'],
      ['{.items[?(@.eats[0])].pet}', 'rex'],
      ["{['a.b'].c}", 'true'],
      ['{.items[0].eats}', '["bone","shoe"]'],
      ['{range .items[*]}{.pet}{"\\t"}{.state}{"\\n"}{end}', 'rex\tready\ntom\tasleep\n'],
      ['{.missing}{.none}{.items[7].pet}', ''],
      ['{.toString}{.constructor.name}', ''],
    ];
    for (const [text, says] of cases) assert.equal(read(text), says, text);
  });

  it('that cannot be read is a mistake, with what was read', () => {
    const cases: readonly [string, RegExp][] = [
      ['.items', /wants a path in braces/],
      ['{.items[}', /cannot read "\[" in the path/],
      ['{range .items[*]}{.pet}', /without its \{end\}/],
      ['{.pet}{end}', /without its \{range/],
      ['{.pet', /wants a path in braces/],
      ['{.a}{.pet', /has no \} for/],
    ];
    for (const [text, says] of cases) assert.throws(() => read(text), says, text);
    assert.throws(() => customColumns('ID'), /wants NAME:\.path/);
    assert.throws(() => selector('a in (b)', '--selector'), /--selector wants KEY=VALUE/);
  });
});
