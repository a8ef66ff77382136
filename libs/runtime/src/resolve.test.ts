import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import type { lookup as systemLookup } from 'node:dns';
import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { RUNTIME } from './defaults.ts';
import { Names, resolveName } from './resolve.ts';
import { etcOf, NameServer, type Said, until } from './testing.ts';

const onLinux = {
  skip: process.platform !== 'linux' || process.versions.deno !== undefined ? 'the system resolves names' : false,
};

interface Rig {
  readonly server: NameServer;
  readonly etc: ReturnType<typeof etcOf>;
  readonly names: Names;
  readonly resolve: (name: string) => Promise<readonly string[]>;
}

async function rig(
  context: TestContext,
  says: (name: string) => Said,
  {
    files = {},
    options = '',
    system,
  }: { files?: Record<string, string>; options?: string; system?: typeof systemLookup } = {},
): Promise<Rig> {
  const server = await new NameServer(says).listen();
  const etc = etcOf({
    'resolv.conf': `nameserver ${server.address}\n${options}`,
    'nsswitch.conf': 'hosts: files dns\n',
    hosts: '',
    ...files,
  });
  context.after(() => {
    server.close();
    etc[Symbol.dispose]();
  });
  const names = new Names(etc.dir, system);
  const resolve = (name: string) =>
    new Promise<readonly string[]>((done, fail) => {
      names.resolve(name, (error, found) => (error ? fail(error) : done(found.map(({ address }) => address))));
    });
  return { server, etc, names, resolve };
}

const CLUSTER = 'search ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5';

test(
  'a name is asked for in the search domains first if it has few dots, and by itself first otherwise',
  onLinux,
  async (context) => {
    const known = ['api.svc.cluster.local', 'www.example.com', 'a.b.c.d.e.f', 'deep.a.b.c.d.e.cluster.local'];
    const { server, resolve } = await rig(context, (name) => (known.includes(name) ? ['10.1.2.3'] : 'missing'), {
      options: CLUSTER,
    });
    const asked = async (name: string) => {
      server.asked.length = 0;
      assert.deepEqual(await resolve(name), ['10.1.2.3'], name);
      return server.asked;
    };
    assert.deepEqual(await asked('api'), ['api.ns.svc.cluster.local', 'api.svc.cluster.local']);
    assert.deepEqual(await asked('www.example.com'), [
      'www.example.com.ns.svc.cluster.local',
      'www.example.com.svc.cluster.local',
      'www.example.com.cluster.local',
      'www.example.com',
    ]);
    assert.deepEqual(await asked('www.example.com.'), ['www.example.com']);
    assert.deepEqual(await asked('a.b.c.d.e.f'), ['a.b.c.d.e.f']);
    assert.equal((await asked('deep.a.b.c.d.e')).at(-1), 'deep.a.b.c.d.e.cluster.local');
    await assert.rejects(resolve('nowhere'), { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: 'nowhere' });
  },
);

test(
  'files that cannot be read, or are being written, leave what was read, and are named by what is not found',
  onLinux,
  async (context) => {
    const { etc, resolve } = await rig(context, () => 'missing', { files: { hosts: '10.0.0.1 here' } });
    const path = join(etc.dir, 'hosts');
    const isHere = async () => assert.deepEqual(await resolve('here'), ['10.0.0.1']);
    await isHere();
    writeFileSync(path, '');
    await isHere();
    for (const bad of [
      () => truncateSync(path, RUNTIME.nameFileBytes + 1),
      () => {
        rmSync(path);
        execFileSync('mkfifo', [path]);
      },
    ]) {
      bad();
      await isHere();
      await assert.rejects(
        resolve('nowhere'),
        /^Error: getaddrinfo ENOTFOUND nowhere; .*hosts: it (has \d+ bytes|is not)/,
      );
    }
    rmSync(path);
    writeFileSync(path, '10.0.0.2 here');
    assert.deepEqual(await resolve('here'), ['10.0.0.2']);
    await assert.rejects(resolve('nowhere'), /^Error: getaddrinfo ENOTFOUND nowhere$/);
  },
);

test(
  'the hosts file comes first, whatever the case, and is read again once it has changed',
  onLinux,
  async (context) => {
    const { server, etc, resolve } = await rig(context, () => ['10.9.9.9'], {
      files: {
        hosts: '10.1.1.1 Box box.test # ours\n10.1.1.2 box\n# 10.1.1.3 gone\n10.1.1.4 dotted.\nnonsense other\n',
      },
    });
    assert.deepEqual(await resolve('BOX'), ['10.1.1.1', '10.1.1.2']);
    assert.deepEqual(await resolve('box.test'), ['10.1.1.1']);
    assert.deepEqual(await resolve('Box.test.'), ['10.1.1.1'], 'with a last dot');
    assert.deepEqual(await resolve('dotted'), ['10.1.1.4']);
    assert.deepEqual(server.asked, []);
    assert.deepEqual(await resolve('gone'), ['10.9.9.9']);
    etc.write('hosts', '10.1.1.77 box\n');
    assert.deepEqual(await resolve('box'), ['10.1.1.77']);
  },
);

test(
  'nsswitch.conf has the order, and what only its other services know is asked of the system',
  onLinux,
  async (context) => {
    const system = ((name: string, _options: object, done: (error: Error | null, found?: object[]) => void) =>
      name === 'printer.local'
        ? done(null, [{ address: '10.7.7.7', family: 4 }])
        : done(Object.assign(new Error(), { code: 'ENOTFOUND' }))) as unknown as typeof systemLookup;
    const { etc, resolve } = await rig(context, (name) => (name === 'both' ? ['10.2.2.2'] : 'missing'), {
      files: {
        hosts: '10.1.1.1 both\n',
        'nsswitch.conf': 'passwd: files\nhosts: dns [!UNAVAIL=return] files # order\n',
      },
      system,
    });
    assert.deepEqual(await resolve('both'), ['10.2.2.2']);
    await assert.rejects(resolve('printer.local'), { code: 'ENOTFOUND' });
    etc.write('nsswitch.conf', 'hosts: files mdns4_minimal [NOTFOUND=return] dns\n');
    assert.deepEqual(await resolve('both'), ['10.1.1.1']);
    assert.deepEqual(await resolve('printer.local'), ['10.7.7.7']);
    await assert.rejects(resolve('nowhere'), { code: 'ENOTFOUND' });
  },
);

test('what getaddrinfo takes for an address is none to ask for', onLinux, async (context) => {
  const { server, resolve } = await rig(context, () => ['10.9.9.9']);
  assert.deepEqual(await resolve('0x7f.2'), ['127.0.0.2']);
  assert.deepEqual(await resolve('2130706434'), ['127.0.0.2']);
  assert.deepEqual(server.asked, []);
});

test(
  '200 silent names delay no other, and nothing is left behind of those that nobody waits for',
  onLinux,
  async (context) => {
    const says = (name: string): Said => (name.startsWith('silent') ? 'silent' : ['10.1.1.1']);
    // Nobody gives up while the test runs.
    const { server, names, resolve } = await rig(context, says, { options: 'options timeout:30' });
    const stops: (() => void)[] = [];
    while (stops.length < 200) {
      stops.push(names.resolve(`silent-${stops.length}.test`, () => assert.fail('given up')));
      // The kernel drops questions for a server of this process beyond what its socket holds.
      if (stops.length % 20 > 0) continue;
      await until(() => server.asked.length >= stops.length, { what: 'all silent names to be asked for' });
    }
    assert.deepEqual(await resolve('healthy.test'), ['10.1.1.1']);
    assert.equal(names.underWay, 200, 'none of the silent ones has ended before it');
    for (const stop of stops) stop();
    assert.equal(names.underWay, 0);
  },
);

test('those who ask for the same name share one lookup, until the last of them has gone', onLinux, async (context) => {
  const { server, names } = await rig(context, () => 'silent');
  const stops = Array.from({ length: 100 }, () => names.resolve('one.test', () => assert.fail('given up')));
  await until(() => server.asked.length > 0, { what: 'a question' });
  assert.deepEqual([server.asked, names.underWay], [['one.test'], 1]);
  for (const stop of stops.slice(1)) stop();
  assert.equal(names.underWay, 1);
  stops[0]?.();
  assert.equal(names.underWay, 0);
  const again = names.resolve('one.test', () => assert.fail('given up'));
  await until(() => server.asked.length > 1, { what: 'another question for the same name' });
  again();
});

test(
  'a silent server, one that is not there and one that does not know are told apart from a missing name',
  onLinux,
  async (context) => {
    const says = { 'silent.test': 'silent', 'unsure.test': 'unsure', 'empty.test': [] } as Record<string, Said>;
    const { etc, resolve } = await rig(context, (name) => says[name] ?? 'missing', {
      options: 'options timeout:1 attempts:1',
    });
    await assert.rejects(resolve('silent.test'), { code: 'ETIMEOUT', syscall: 'getaddrinfo' });
    await assert.rejects(resolve('unsure.test'), { code: 'EAI_FAIL', syscall: 'getaddrinfo' });
    await assert.rejects(resolve('empty.test'), { code: 'ENOTFOUND' });
    await assert.rejects(resolve(`${'x'.repeat(64)}.test`), { code: 'ENOTFOUND' });
    await assert.rejects(resolve('a..b'), { code: 'ENOTFOUND' });
    etc.write('resolv.conf', 'nameserver 127.0.0.1:1\n');
    await assert.rejects(resolve('any.test'), { code: 'EAI_AGAIN' });
  },
);

test('a server that does not know is no answer while there is another', onLinux, async (context) => {
  const other = await new NameServer((name) => (name === 'a.test' ? ['10.3.3.3'] : 'missing')).listen();
  context.after(() => other.close());
  const { etc, server, resolve } = await rig(context, () => 'unsure');
  etc.write('resolv.conf', `nameserver ${server.address}\nnameserver ${other.address}\n`);
  assert.deepEqual(await resolve('a.test'), ['10.3.3.3']);
  assert.deepEqual([server.asked, other.asked], [['a.test'], ['a.test']]);
});

test('of a name with thousands of addresses only the first count', async () => {
  const found = Array.from({ length: 4000 }, (_, index) => ({
    address: `127.9.${index >> 8}.${index & 255}`,
    family: 4,
  }));
  const system = ((_name: string, _options: object, done: (error: null, all: object[]) => void) =>
    done(null, found)) as unknown as typeof systemLookup;
  const addresses = await new Promise((resolve) =>
    new Names(undefined, system).resolve('0x7f.1', (_error, all) => resolve(all)),
  );
  assert.deepEqual(addresses, found.slice(0, RUNTIME.nameAddresses));
});

test('a name that nobody waits for any more gives up its turn of getaddrinfo', async () => {
  const asked: string[] = [];
  const answers: (() => void)[] = [];
  const system = ((name: string, _options: object, done: (error: null, found: object[]) => void) => {
    asked.push(name);
    answers.push(() => done(null, [{ address: '127.0.0.1', family: 4 }]));
  }) as unknown as typeof systemLookup;
  const names = new Names(undefined, system);
  const found: string[] = [];
  // Names that only getaddrinfo can tell, on any system.
  const ask = (name: string) => names.resolve(name, () => found.push(name));
  const most = Array.from({ length: RUNTIME.systemNames }, (_, index) => `0x7f.${index + 1}`);
  for (const name of most) ask(name);
  const stop = ask('0x7f.77');
  const signal = AbortSignal.abort(new Error('given up'));
  await assert.rejects(resolveName('0x7f.78', signal), /given up/);
  ask('0x7f.79');
  await until(() => asked.length === most.length, { what: 'as many questions as may be' });
  stop();
  for (const answer of answers.splice(0)) answer();
  await until(() => asked.length > most.length, { what: 'the next question' });
  answers[0]?.();
  await until(() => found.length > most.length, { what: 'the last answer' });
  assert.deepEqual(asked, [...most, '0x7f.79']);
});
