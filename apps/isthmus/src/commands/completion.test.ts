import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { commandTree } from '../program.ts';
import { SHELLS } from './completion.ts';

describe('completion', () => {
  let dir: string;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-completion-'));
    for (const [shell, script] of Object.entries(SHELLS)) writeFileSync(join(dir, shell), script(commandTree()));
    // Stands for the program: it offers its own command line.
    writeFileSync(
      join(dir, 'isthmus'),
      '#!/bin/sh\nshift 2\nkind=$1\nshift 3\nfor each in "$kind-1" "$kind-2" "$@"; do echo "$each"; done\n',
    );
    chmodSync(join(dir, 'isthmus'), 0o755);
  });
  after(() => rm(dir, { recursive: true }));

  function missing(shell: string): string | false {
    return spawnSync(shell, ['--help']).error === undefined ? false : `${shell} is not installed`;
  }

  function output(command: string, ...args: string[]): string {
    const env = { ...process.env, PATH: `${dir}${delimiter}${process.env.PATH}`, HOME: dir, TERM: 'dumb' };
    const { stdout, stderr, error } = spawnSync(command, args, { env, encoding: 'utf8', timeout: 60_000 });
    assert.equal(error, undefined);
    assert.match(stderr, /^(\[Debug\] .*\n|Completion ended with directive: .*\n)*$/);
    return stdout;
  }

  /** What a shell offers at the end of a line. */
  const OFFERS: Readonly<Record<string, (line: string) => string[]>> = {
    bash(line) {
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is bash.
      const script = 'source "$0"; COMP_LINE=$1; COMP_POINT=${#1}; _isthmus isthmus; printf "%s\\n" "${COMPREPLY[@]}"';
      return words(output('bash', '-c', script, join(dir, 'bash'), line));
    },
    fish: (line) =>
      words(output('fish', '--no-config', '-c', 'source $argv[1]; complete -C $argv[2]', join(dir, 'fish'), line)),
  };

  function words(text: string): string[] {
    return text
      .split('\n')
      .map((each) => each.split('\t')[0] ?? '')
      .filter((each) => each !== '');
  }

  describe('completion', () => {
    for (const [shell, offers] of Object.entries(OFFERS)) {
      it(`of ${shell} offers commands, options, choices and names`, { skip: missing(shell) }, () => {
        const has = (line: string, ...wanted: string[]) => {
          const found = offers(line);
          for (const each of wanted) assert.ok(found.includes(each), `${line}: ${each} is not in ${found.join(' ')}`);
        };
        has('isthmus ', 'status', 'dial', 'completion');
        has('isthmus --', '--address', '--tenant', '--output');
        has('isthmus -a 10.0.0.5:8095 tun', 'tunnels');
        has('isthmus tunnels --', '--agent', '--sort', '--address');
        has('isthmus tunnels --sort ', 'age', 'bytes');
        has('isthmus status -o ', 'table', 'wide', 'json', 'yaml');
        has('isthmus completion ', 'bash', 'zsh', 'fish');
        has('isthmus dial 10.0.0.1:80 --agent ', 'agents-1', 'agents-2');
        has('isthmus dial 10.0.0.1:80 --gateway ', 'gateways-1');
        has('isthmus status --tenant ', 'tenants-1');
        has('isthmus config --member ', 'members-1');
        has('isthmus drain ', 'hubs-1', 'hubs-2');
        has('isthmus login ', 'tenants-1');
        has('isthmus agents ', 'agents-1', 'agents-2');
        has('isthmus tunnels -o ', 'name', 'custom-columns=');
        has('isthmus hubs --', '--watch', '--no-headers', '--field-selector');
        has('isthmus quarantine ag', 'agents-1');
        has('isthmus kick agent ', 'agents-1');
      });

      it(`of ${shell} asks the plane that the line names`, { skip: missing(shell) }, () => {
        const asked = [...new Set(offers('isthmus -a 10.0.0.5:8095 --ca ca.pem drain '))];
        const named = ['-a', '10.0.0.5:8095', '--ca', 'ca.pem'];
        assert.deepEqual(asked.filter((each) => named.includes(each)).sort(), named.sort());
      });
    }

    it('of bash offers options only where nothing else fits, and no word twice', { skip: missing('bash') }, () => {
      const offered = (line: string) => OFFERS.bash?.(line) ?? [];
      assert.deepEqual(offered('isthmus quarantine ').slice(0, 2), ['agents-1', 'agents-2']);
      assert.ok(!offered('isthmus quarantine ').includes('--reason'));
      assert.ok(offered('isthmus watch ').includes('--tenant'));
      assert.ok(offered('isthmus kick ').includes('tunnel'));
      assert.ok(!offered('isthmus kick agent ').includes('tunnel'));
    });

    it('offers names wherever an argument or an option takes one of the plane', () => {
      const root = commandTree();
      const described = [
        ...root.options.map((option) => ({ at: option.flags, option })),
        ...root.commands.flatMap((command) => [
          ...command.options.map((option) => ({ at: `${command.name()} ${option.flags}`, option })),
          ...command.registeredArguments.map((option) => ({ at: `${command.name()} <${option.name()}>`, option })),
        ]),
      ];
      const takeNames = described.filter(({ at }) =>
        /<(agent|hub|member|tenant|id)>|--(agent|hub|member|tenant) <name>/.test(at),
      );
      assert.ok(takeNames.length > 10);
      const without = takeNames.filter(({ option }) => !('names' in option)).map(({ at }) => at);
      assert.deepEqual(without, [], 'describe them by naming() of command.ts');
    });

    it('of kubectl offers what bash does, to kubectl isthmus', { skip: missing('kubectl') || missing('bash') }, () => {
      for (const [from, to] of [
        ['kubectl', 'kubectl_complete-isthmus'],
        ['isthmus', 'kubectl-isthmus'],
      ] as const) {
        copyFileSync(join(dir, from), join(dir, to));
        chmodSync(join(dir, to), 0o755);
      }
      const offered = (...line: string[]) => words(output('kubectl', '__complete', 'isthmus', ...line));
      assert.ok(offered('tun').includes('tunnels'));
      assert.deepEqual(offered('-a', '10.0.0.5:8095', 'drain', '').slice(0, 2), ['hubs-1', 'hubs-2']);
      assert.deepEqual(offered('nothing-of-the-kind'), [':4']);
    });

    it('of zsh offers names, of the plane that the line names', { skip: missing('zsh') }, () => {
      // zsh completes only where somebody types, so its own functions are replaced, and show what they get.
      const script = `
      compdef() { }
      compadd() { print -l -- \${(P)2} }
      _arguments() { print -l -- "$@" }
      source $1
      LBUFFER='isthmus -a 10.0.0.5:8095 --tenant=acme drain '
      _isthmus_names hubs
      line=(drain) state=rest
      functions[_isthmus]=\${functions[_isthmus]/local state line/}
      _isthmus`;
      const seen = output('zsh', '-f', '-c', script, 'zsh', join(dir, 'zsh')).split('\n');
      assert.deepEqual(seen.slice(0, 5), ['hubs-1', 'hubs-2', '-a', '10.0.0.5:8095', '--tenant=acme']);
      assert.ok(
        seen.includes(
          "*--tenant[only this tenant; a dial uses it instead of the gateway's own]:value: _isthmus_names tenants",
        ),
      );
      assert.ok(seen.includes('1:hub: _isthmus_names hubs'), seen.join('\n'));
    });
  });
});
