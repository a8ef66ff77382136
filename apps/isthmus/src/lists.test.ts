import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import type { Call } from './command.ts';
import { type Kind, type ListOptions, list, rowsTable, selector } from './lists.ts';
import { EXIT, Failure, type Format, Output } from './output.ts';
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
  shop = 'main',
): Kind<Pet, { readonly shop: string }> {
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
        more: () => ({ shop }),
        text: (items, style, { more }) => `Pets of ${more.shop}:\n${rowsTable(COLUMNS, items, style)}`,
      };
    },
  };
}

async function listed(
  output: Format,
  options: ListOptions,
  names: readonly string[] = [],
  kind = kindOf([[rex, tom]]),
) {
  const terminal = new TestTerminal([]);
  const call = {
    args: [names],
    options,
    terminal,
    output: new Output(terminal, output),
  } as unknown as Call<ListOptions>;
  const status = await list(kind, call).catch((error: Failure) => error);
  return { status, out: terminal.stdout, err: terminal.stderr };
}

describe('a list', () => {
  it('shows nothing of its objects, or of what belongs to them, that acts on a terminal', async () => {
    const told = 'x\u001b[2J\ny';
    for (const format of ['table', 'json', 'name'] as const) {
      const kind = kindOf([[{ ...rex, pet: told, state: told }]], [{ ...silent, reason: told }], () => {}, told);
      const { out, err } = await listed(format, {}, [], kind);
      assert.match(out + err, /^[\n\P{C}]*$/u, format);
      assert.doesNotMatch(out + err, /^y/m, format);
    }
  });

  it('shows all, with what belongs to it, or the rows alone', async () => {
    const rows = 'rex   ready    5\ntom   asleep   70\n';
    assert.equal((await listed('table', {})).out, `Pets of main:\nPET   STATE    AGE\n${rows}`);
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

  it('says once which members are silent, wherever it goes', async () => {
    for (const format of ['table', 'wide', 'json', 'yaml', 'name'] as const)
      for (const names of [[], ['tom']])
        for (const headers of [true, false]) {
          const { out, err } = await listed(format, { headers }, names, kindOf([[rex, tom]], [silent]));
          assert.equal((out + err).match(/gone/g)?.length, 1, `${format} ${names}`);
        }
  });

  it('prints names', async () => {
    assert.equal((await listed('name', {})).out, 'pet/rex\npet/tom\n');
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

  it('says of the plane what is true of it, whatever is chosen', async () => {
    const judged = (pets: readonly Pet[]): ReturnType<typeof kindOf> => {
      const kind = kindOf([pets]);
      return {
        ...kind,
        async ask(call) {
          const text = (items: readonly Pet[]) => (items.length === 0 ? 'There is no pet at all\n' : 'pets\n');
          const status = pets.length === 0 ? EXIT.wrong : EXIT.good;
          return { ...(await kind.ask(call)), text, status };
        },
      };
    };
    const none = await listed('table', {}, [], judged([]));
    assert.deepEqual([none.out, none.status], ['There is no pet at all\n', EXIT.wrong]);
    const unlike = await listed('table', { fieldSelector: 'state=lost' }, [], judged([rex]));
    assert.deepEqual([unlike.out, unlike.status], ['None of the pets match\n', EXIT.good]);
    const names = await listed('name', { fieldSelector: 'state!=ready' }, [], judged([rex]));
    assert.deepEqual([names.out, names.status], ['', EXIT.good]);
    const unknown = await listed('table', {}, ['ed'], judged([rex]));
    assert.equal(unknown.out, '');
    assert.equal((unknown.status as Failure).message, 'there is no pet ed');
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
    output: Format,
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
  it('folds what does not fit, as the list does, and loses no word', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const tick = setInterval(() => t.mock.timers.tick(10_000), 1);
    const long = { ...rex, state: 'waits for its dinner since early this morning' };
    const interrupt = new AbortController();
    const terminal = new TestTerminal([], { interrupted: interrupt.signal, interactive: true, columns: 40 });
    const columns = () => [COLUMNS[0], { ...COLUMNS[1], least: 16, folds: true }];
    const kind = { ...kindOf([[long], [long, { ...long, pet: 'tom' }]], [], () => interrupt.abort()), columns };
    const plane = async () => ({ meet: async () => {} });
    const call = { args: [[]], options: { watch: true }, terminal, plane, output: new Output(terminal, 'table') };
    try {
      await list(kind, call as unknown as Call<ListOptions>);
    } finally {
      clearInterval(tick);
    }
    const row = (pet: string) => [
      `added     ${pet}   waits for its dinner`,
      '                since early this morning',
    ];
    assert.equal(terminal.stdout, ['EVENT     PET   STATE', ...row('rex'), ...row('tom'), ''].join('\n'));
  });

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

test('a selector that cannot be read is a mistake, with what was read', () => {
  assert.throws(() => selector('a in (b)', '--selector'), /--selector wants KEY=VALUE.*"a in \(b\)"/);
});
