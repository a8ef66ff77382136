import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { createSecureContext } from 'node:tls';
import { backendHub, frontendGateway, parseFlags, proxyAgent, proxyServer } from '@isthmus/flags';
import { GATEWAY_NAME, HUB_SERVER_NAME } from '@isthmus/tunnel';
import { EXIT } from '../output.ts';
import { run } from '../program.ts';
import { TestTerminal } from '../testing/test-terminal.ts';

describe('make', () => {
  const noCurl = spawnSync('curl', ['--version']).status === 0 ? false : 'curl is not installed';
  let dir: string;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-certs-'));
  });

  afterEach(() => rm(dir, { recursive: true, force: true }));

  async function certs(...args: string[]) {
    const terminal = new TestTerminal(['certs', dir, ...args]);
    return { status: await run(terminal), terminal };
  }

  function read(name: string): Buffer {
    return readFileSync(join(dir, name));
  }

  describe('isthmus certs', () => {
    it('makes an authority for each party, and a certificate for each of its members', async () => {
      const { status, terminal } = await certs('--host', 'hub.example.com,10.0.0.5', '--agent', 'a,b', '--days', '30');
      assert.equal(status, EXIT.good, terminal.stderr);
      const leaves = [
        'callers-server',
        'callers-kube-apiserver',
        'agents-server',
        'agents-a',
        'agents-b',
        'peers-gateway',
        'peers-hub',
        'peers-server',
        'admin-server',
        'admin-operator',
      ];
      // Two that are joined are one bundle: Go, Python and Node read none whose lines run together.
      for (const name of readdirSync(dir)) assert.match(read(name).toString(), /-----END [A-Z ]+-----\n$/, name);
      const authorities = ['callers', 'agents', 'peers', 'admin'].map(
        (party) => new X509Certificate(read(`${party}-ca.pem`)),
      );
      for (const leaf of leaves) {
        const certificate = new X509Certificate(read(`${leaf}.pem`));
        const issuers = authorities.filter((authority) => certificate.verify(authority.publicKey));
        assert.deepEqual(
          issuers.map(({ subject }) => subject),
          [`CN=isthmus ${leaf.split('-')[0]}`],
          leaf,
        );
        createSecureContext({ cert: read(`${leaf}.pem`), key: read(`${leaf}-key.pem`) });
        const days = (Date.parse(certificate.validTo) - Date.now()) / 86_400_000;
        assert.ok(days > 29.9 && days < 30.1, `${leaf}: ${days} days`);
        const names = /^(callers|agents|admin)-server$/.test(leaf)
          ? ['hub.example.com', '10.0.0.5']
          : [undefined, undefined];
        assert.deepEqual([certificate.checkHost('hub.example.com'), certificate.checkIP('10.0.0.5')], names, leaf);
      }
      const roles = ['peers-gateway', 'peers-hub', 'peers-server'].map((leaf) => {
        const certificate = new X509Certificate(read(`${leaf}.pem`));
        return [GATEWAY_NAME, HUB_SERVER_NAME].filter((role) => certificate.checkHost(role));
      });
      assert.deepEqual(roles, [[GATEWAY_NAME], [HUB_SERVER_NAME], [GATEWAY_NAME, HUB_SERVER_NAME]]);
      for (const name of readdirSync(dir).filter((each) => each.endsWith('-key.pem'))) {
        assert.equal(statSync(join(dir, name)).mode & 0o77, 0, `${name} is its owner's alone`);
      }
    });

    it("lists the flags that use them, in the programs' syntax", async () => {
      const { terminal } = await certs('-o', 'json');
      const { flags } = JSON.parse(terminal.stdout) as { flags: { program: string; flags: string[] }[] };
      for (const program of [proxyServer, frontendGateway, backendHub, proxyAgent]) {
        const own = flags.find((each) => each.program.startsWith(program.name));
        parseFlags(program.flags, own?.flags ?? assert.fail(program.name), {});
      }
      const operator = flags.find(({ program }) => program.startsWith('isthmus'));
      const terminal2 = new TestTerminal(['status', '-a', '127.0.0.1:1', ...(operator?.flags ?? [])]);
      assert.equal(await run(terminal2), EXIT.unasked, terminal2.stderr);
    });

    it("lists them in curl's syntax", { skip: noCurl }, async () => {
      const terminal = new TestTerminal(['certs', join(dir, 'a space'), '-o', 'json']);
      await run(terminal);
      const { flags } = JSON.parse(terminal.stdout) as { flags: { program: string; flags: string[] }[] };
      const own = flags.find(({ program }) => program.startsWith('curl'))?.flags ?? assert.fail('no flags for curl');
      const { status, stderr } = spawnSync('curl', [...own, '--version']);
      assert.equal(status, 0, `${stderr}`);
      const files = own.filter((argument) => !argument.startsWith('--'));
      assert.deepEqual(files.map(existsSync), [true, true, true], own.join(' '));
    });

    it('lists each certificate with its key', async () => {
      const { terminal } = await certs('--agent', 'a');
      const listed = [...terminal.stdout.matchAll(/^(\S+\.pem) +(\S+\.pem) +\S/gm)].flatMap(([, file, key]) => [
        file,
        key,
      ]);
      assert.deepEqual(listed.sort(), readdirSync(dir).sort());
    });

    it('prints commands that a shell takes as they are, also from a directory whose name needs quotes', async () => {
      for (const [npm, name, narrow] of [
        ['exec', "it's a dir", false],
        ['', 'pki', false],
        ['', 'a long name of a directory, with spaces', true],
      ] as const) {
        const own = join(dir, name);
        const terminal = new TestTerminal(['certs', own, '--host', 'hub.example.com', '--agent', 'a,b'], {
          env: { npm_command: npm },
          ...(narrow && { interactive: true, columns: 40 }),
        });
        await run(terminal);
        const commands = terminal.stdout.slice(terminal.stdout.indexOf('Commands that use them:\n') + 24);
        // Each program is a function that prints its name and its arguments.
        const programs = ['proxy-server', 'frontend-gw', 'backend-hub', 'proxy-agent', 'curl', 'isthmus'];
        const shell = (name: string) => `${name}() { printf '%s\\n' '> ${name}' "$@"; }\n`;
        const stubs = (npm === '' ? programs : ['npx', 'curl']).map(shell).join('');
        const { stdout, stderr } = spawnSync('bash', ['-c', stubs + commands], { encoding: 'utf8' });
        assert.equal(stderr, '');
        const started = stdout
          .split(/^> /m)
          .slice(1)
          .map((each) => each.trimEnd().split('\n'));
        const words = started.map((each) => (each[0] === 'npx' ? each.slice(1) : each));
        assert.deepEqual(
          words.map(([program]) => program),
          ['proxy-server', 'frontend-gw', 'backend-hub', 'proxy-agent', 'proxy-agent', 'isthmus', 'curl'],
        );
        for (const program of [proxyServer, frontendGateway, backendHub, proxyAgent]) {
          const [, ...given] = words.find(([name]) => name === program.name) ?? assert.fail(program.name);
          parseFlags(program.flags, given, {});
        }
        const ids = words.map((each) => each.find((word) => /^--(agent|server)-id=/.test(word))?.replace(/.*=/, ''));
        assert.deepEqual(ids.slice(0, 5), ['server-1', 'gateway-1', 'hub-1', 'a', 'b']);
        assert.equal(words.at(-1)?.at(-1), 'http://hub.example.com:8092/readyz');
        for (const word of words.flat()) {
          const [, path] = /^(?:--[\w-]+=)?(.*\.pem)$/.exec(word) ?? [];
          if (path !== undefined) assert.ok(existsSync(path), word);
        }
      }
    });

    it('overwrites nothing without --force', async () => {
      await certs();
      const before = read('callers-ca.pem');
      const { status, terminal } = await certs();
      assert.equal(status, EXIT.usage);
      assert.match(
        terminal.stderr,
        /callers-ca\.pem.* exist already: nothing was written\. --force overwrites them\n$/,
      );
      assert.deepEqual(read('callers-ca.pem'), before);
      assert.equal((await certs('--force')).status, EXIT.good);
      assert.notDeepEqual(read('callers-ca.pem'), before);
    });

    it('rejects invalid names, and names that lead out of the directory', async () => {
      for (const args of [
        ['--agent', '../x'],
        ['--caller', 'a/b'],
        ['--host', 'a b'],
        ['--days', '0'],
      ]) {
        assert.equal((await certs(...args)).status, EXIT.usage, args.join(' '));
      }
      assert.deepEqual(readdirSync(dir), []);
    });
  });

  describe('isthmus certs -o kubernetes', () => {
    const printed = async (...args: string[]) => {
      const terminal = new TestTerminal(['certs', '-o', 'kubernetes', ...args]);
      return { status: await run(terminal), terminal };
    };
    const names = (text: string) =>
      [...text.matchAll(/^kind: (\w+)\nmetadata:\n {2}name: (.+)\n {2}namespace: (.+)$/gm)].map((found) =>
        found.slice(1).join(' '),
      );

    it("prints a plane's secrets, for the names of its services and those that are given", async () => {
      const { status, terminal } = await printed('--host', 'hubs.example.com');
      assert.equal(status, EXIT.good, terminal.stderr);
      assert.deepEqual(names(terminal.stdout), [
        'Secret gateway-callers-tls isthmus-plane',
        'Secret gateway-peers-tls isthmus-plane',
        'Secret hub-peers-tls isthmus-plane',
        'Secret hub-agents-tls isthmus-plane',
        'Secret kube-apiserver-tls isthmus-plane',
        'Secret admin-tls isthmus-plane',
        'Secret operator-tls isthmus-plane',
        'Secret redis-auth isthmus-plane',
        'ConfigMap hub-ca isthmus-agent',
      ]);
      const [certificate = ''] = /-----BEGIN[\s\S]+?-----END CERTIFICATE-----/.exec(terminal.stdout) ?? [];
      const altNames = new X509Certificate(certificate.replaceAll(/^ +/gm, '')).subjectAltName;
      assert.equal(altNames, 'DNS:gateway.isthmus-plane.svc, DNS:hub.isthmus-plane.svc, DNS:hubs.example.com');
      assert.match(terminal.stdout, /^ {2}password: "[0-9a-f]{64}"$/m);
      assert.match(terminal.stderr, /the CAs' keys were not kept: name a directory to keep them\n$/);
    });

    it('says of each object to which cluster it goes', async () => {
      const clusters = (text: string) =>
        [...text.matchAll(/(?:^# For (.+)\.\n)?^apiVersion: v1\nkind: \w+\nmetadata:\n {2}name: (.+)$/gm)].map(
          ([, cluster, name]) => `${name}: ${cluster}`,
        );
      const { terminal } = await printed('--recipe', 'tenant', '--tenant', 'acme', '--host', 'acme.plane.example');
      assert.deepEqual(clusters(terminal.stdout), [
        'tenants-credentials: the cluster of the plane',
        "acme-callers: the cluster that runs acme's API server",
        "hub-ca: acme's own cluster, of its agents",
      ]);
      for (const recipe of ['plane', 'server']) {
        const found = clusters((await printed('--recipe', recipe)).terminal.stdout);
        assert.equal(found.at(-1), 'hub-ca: the cluster of the agents');
        for (const each of found.slice(0, -1)) assert.match(each, /: the cluster of the plane$/);
      }
    });

    it('writes the files too, if a directory is named', async () => {
      const { status, terminal } = await printed(dir, '--recipe', 'server');
      assert.equal(status, EXIT.good, terminal.stderr);
      assert.ok(terminal.stdout.replaceAll(/^ {4}/gm, '').includes(String(read('agents-server-key.pem')).trim()));
      assert.equal(terminal.stderr, '');
    });

    it("prints a tenant's credentials under its own keys", async () => {
      const { terminal } = await printed('--recipe', 'tenant', '--tenant', 'acme', '--host', 'acme.plane.example');
      assert.deepEqual(
        [...terminal.stdout.matchAll(/^ {2}(acme[\w.-]+): \|$/gm)].map(([, key]) => key),
        ['acme.crt', 'acme.key', 'acme-callers-ca.crt'],
      );
      assert.deepEqual(names(terminal.stdout), [
        'Secret tenants-credentials isthmus-plane',
        'Secret acme-callers tenants',
        'ConfigMap hub-ca kube-system',
      ]);
    });

    it('says what is missing, and which recipes have no secrets', async () => {
      for (const [args, message] of [
        [
          ['--recipe', 'k0s'],
          /^isthmus: k0s needs no secrets: the cluster's own CA .* \(k8s\/recipes\/k0s\/README\.md\)\n$/,
        ],
        [['--recipe', 'tenant', '--tenant', 'acme'], /^isthmus: --recipe tenant needs --host: /],
        [['--recipe', 'tenant', '--host', 'a.example'], /^isthmus: --recipe tenant needs --tenant NAME/],
        [
          ['--recipe', 'plain'],
          /^isthmus: .*'plain' is invalid\. Allowed choices are plane, shared-plane, server, tenant, /,
        ],
      ] as const) {
        const { status, terminal } = await printed(...args);
        assert.deepEqual([status, terminal.stdout], [EXIT.usage, '']);
        assert.match(terminal.stderr, message);
      }
      for (const [args, message] of [
        [['certs'], /^isthmus: name the directory to write to, or print secrets with -o kubernetes\n$/],
        [['certs', '--recipe', 'plane', dir], /^isthmus: --recipe is for -o kubernetes\n$/],
        [['status', '-o', 'kubernetes'], /^isthmus: status prints no Kubernetes objects: use -o json\n$/],
      ] as const) {
        const terminal = new TestTerminal([...args]);
        assert.equal(await run(terminal), EXIT.usage);
        assert.match(terminal.stderr, message);
      }
    });
  });
});
