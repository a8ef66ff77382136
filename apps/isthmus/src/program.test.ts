import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { EXIT } from './output.ts';
import { COMMANDS, interpret, run } from './program.ts';
import { TestTerminal } from './testing/test-terminal.ts';

function parsed(...args: string[]) {
  const terminal = new TestTerminal(args);
  const result = interpret(terminal);
  return typeof result === 'number' ? { status: result, terminal } : { ...result, terminal };
}

test('every example in --help is a valid command line', () => {
  for (const { name, examples } of COMMANDS) {
    assert.ok(Object.keys(examples).length > 0, name);
    for (const line of Object.keys(examples)) {
      const words = [...line.replace(/ [>|] .*/, '').matchAll(/"([^"]*)"|(\S+)/g)].map(
        ([, text, word]) => text ?? word ?? '',
      );
      const { status, terminal, definition } = { status: 0, definition: undefined, ...parsed(...words) };
      assert.equal(status, 0, `${line}: ${terminal.stderr}`);
      assert.equal(definition?.name, name, line);
    }
  }
});

test('what was typed or pasted acts on no terminal when it is repeated', async () => {
  const evil = '\u001b[2J\u202e';
  const lines = [
    [evil],
    [`--${evil}`],
    ['status', '-o', evil],
    ['explain', `${evil}:80`],
    ['config', evil],
    ['dial', evil],
  ];
  for (const args of [
    ...lines,
    ['config', 'use-context', evil],
    ['tenants', 'check', evil],
    ['--context', evil, 'hubs'],
  ]) {
    const terminal = new TestTerminal(args, { env: { ISTHMUSCONFIG: '/dev/null' } });
    assert.equal(await run(terminal), EXIT.usage, args.join(' '));
    assert.match(terminal.stderr, /^[\n\P{C}]+$/u, args.join(' '));
  }
});

test('--help of every command shows its options and examples', () => {
  for (const { name, summary } of COMMANDS) {
    const { status, terminal } = { status: undefined, ...parsed(name, '--help') };
    assert.equal(status, EXIT.good, name);
    assert.match(terminal.stdout, /Examples:\n {2}isthmus /, name);
    assert.doesNotMatch(terminal.stdout, /--address <host:port>/, name);
    assert.ok(terminal.stdout.replaceAll(/\s+/g, ' ').includes(summary), name);
  }
});

test('--help lists commands in groups, and the options of every command once', () => {
  const { status, terminal } = { status: undefined, ...parsed('--help') };
  assert.equal(status, EXIT.good);
  assert.match(terminal.stdout, /\nFind out why:\n {2}check /);
  assert.equal(terminal.stdout.match(/--address <host:port>/g)?.length, 1);
});

test('--help wraps at the width of the terminal', () => {
  for (const columns of [60, 80, 100])
    for (const name of [[], ...COMMANDS.map((command) => [command.name])]) {
      const terminal = new TestTerminal([...name, '--help'], { columns });
      assert.equal(interpret(terminal), EXIT.good);
      const long = terminal.stdout.split('\n').filter((line) => line.length > columns && line.trim().includes(' '));
      assert.deepEqual(long, [], `${name} at ${columns}`);
    }
});

test('help for an unknown command is a mistake, with a hint', () => {
  for (const line of [
    ['staus', '--help'],
    ['-o', 'json', 'staus', '-h'],
    ['staus', 'x', '--help'],
  ]) {
    const { status, terminal } = { status: undefined, ...parsed(...line) };
    assert.equal(status, EXIT.usage, line.join(' '));
    assert.equal(terminal.stderr, "isthmus: unknown command 'staus'\n(Did you mean status?)\n");
    assert.equal(terminal.stdout, '');
  }
});

const MISTAKES: readonly (readonly [line: string, says: RegExp])[] = [
  ['staus', /^isthmus: unknown command 'staus'\n\(Did you mean status\?\)\n$/],
  ['dial', /^isthmus: missing required argument 'host:port'\n$/],
  ['dial nowhere', /bad destination "nowhere": want host:port or \[ipv6\]:port/],
  ['dial a:1 b:2', /too many arguments/],
  ['status --address nowhere', /'nowhere' is invalid.*want host:port/],
  ['status -o xml', /'xml' is invalid\. Allowed choices are table, wide, json, yaml/],
  ['status --timeout 5', /the unit is missing: write 10s/],
  ['status --timeout 0s', /want a duration above 0/],
  ['status --timeout 121s', /want 2m at most/],
  ['tunnels --limit 0', /want a number from 1/],
  ['kick everything x', /Allowed choices are agent, session, tunnel/],
  ['quarantine a --lift --reason b', /cannot be used with option/],
];

test('a mistake gives the usage status, and one line that says what to write', () => {
  for (const [line, says] of MISTAKES) {
    const { status, terminal } = { status: undefined, ...parsed(...line.split(' ')) };
    assert.equal(status, EXIT.usage, line);
    assert.match(terminal.stderr, says, line);
    assert.equal(terminal.stdout, '', line);
  }
});

const LATE_MISTAKES: readonly (readonly [line: string, says: RegExp])[] = [
  ['quarantine agent-1', /say why, for other operators: --reason TEXT/],
  ['quarantine --lift', /name the agent/],
  ['check -o name', /check prints no list/],
  ['log-level loud', /unknown level "loud"/],
  ['log-level --for 5m', /--for needs a level/],
  ['status --cert a.pem', /--cert and --key go together/],
  ['status --cert a.pem --key b.pem', /--cert has no effect without --ca/],
  ['status --ca /nowhere/ca.pem', /--ca: cannot read \/nowhere\/ca.pem/],
];

test('so does a mistake that only the command itself can find', async () => {
  for (const [line, says] of LATE_MISTAKES) {
    const terminal = new TestTerminal([...line.split(' '), '--address', '127.0.0.1:1']);
    const status = await run(terminal);
    assert.match(terminal.stderr, says, line);
    assert.equal(status, EXIT.usage, line);
  }
});

test('addresses may be repeated or listed, and replace the default', () => {
  const addresses = (...args: string[]) => {
    const result = parsed('status', ...args);
    return 'options' in result ? result.options.address : result.terminal.stderr;
  };
  assert.deepEqual(addresses(), ['127.0.0.1:8095']);
  assert.deepEqual(addresses('-a', 'a:1', '--address=b:2,c:3'), ['a:1', 'b:2', 'c:3']);
  assert.deepEqual(addresses('-a', '[::1]:8095'), ['[::1]:8095']);
});

test('common options may come before or after the command', () => {
  for (const line of [
    ['-o', 'json', 'status'],
    ['status', '-o', 'json'],
  ]) {
    const result = parsed(...line);
    assert.ok('options' in result);
    assert.equal(result.options.output, 'json');
  }
});

test('without any answer the exit status is 3, with the reason and what to do', async () => {
  const terminal = new TestTerminal(['status', '--address', '127.0.0.1:1']);
  assert.equal(await run(terminal), EXIT.unasked);
  assert.match(terminal.stderr, /^isthmus: no member answers: 127\.0\.0\.1:1: .*ECONNREFUSED.*--address\n$/);
});

test('a command that asks for several things at once meets the plane once', async (t) => {
  const asked: string[] = [];
  const server = createHttpServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text) => {
      body += text;
    });
    request.on('end', () => {
      asked.push(`${request.url} ${JSON.parse(body).method}`);
      response.writeHead(403).end('{"code":"permission_denied","message":"not you"}');
    });
  });
  server.listen(0, '127.0.0.1');
  t.after(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const terminal = new TestTerminal(['events', '--address', `127.0.0.1:${port}`]);
  assert.equal(await run(terminal), EXIT.unasked, terminal.stderr);
  assert.match(terminal.stderr, /not you/);
  assert.ok(asked.includes('/ask ListMembers'));
  assert.equal(new Set(asked).size, asked.length, asked.join(', '));
});

test('check --wait asks again until its time is over', async () => {
  const terminal = new TestTerminal(['check', '--wait', '1ms', '--address', '127.0.0.1:1']);
  assert.equal(await run(terminal), EXIT.unasked);
  assert.match(terminal.stderr, /ECONNREFUSED/);
  let asked = 0;
  const server = createServer((socket) => {
    asked++;
    socket.destroy();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const interrupt = new AbortController();
  const { port } = server.address() as AddressInfo;
  const waiting = run(
    new TestTerminal(['check', '--wait', '10m', '--address', `127.0.0.1:${port}`], { interrupted: interrupt.signal }),
  );
  const first = asked;
  while (asked < first + 2) await once(server, 'connection');
  interrupt.abort();
  assert.equal(await waiting, EXIT.unasked);
  server.close();
});
