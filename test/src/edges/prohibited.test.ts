import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { allInOne, scoped } from '../harness/index.ts';
import { refusals } from './rig.ts';

test(
  "no tunnel leads to an agent's own ports, to link-local addresses or to metadata services, in any spelling",
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const agent = agents[0]!;
    const own = Object.values(networkInterfaces()).flatMap(
      (all) => all?.filter(({ family }) => family === 'IPv4').map(({ address }) => address) ?? [],
    );
    const port = agent.healthPort;
    const cases: readonly (readonly [destination: string, by: string])[] = [
      ...[
        '127.0.0.1',
        '127.1',
        '0x7f.1',
        '0177.0.0.1',
        '2130706433',
        '0',
        '0.0.0.0',
        '[::]',
        '[::1]',
        '[::ffff:127.0.0.1]',
        'localhost',
        ...own,
      ].map((host) => [`${host}:${port}`, 'own-ports'] as const),
      ['169.254.1.1:80', 'link-local'],
      ['[fe80::1]:80', 'link-local'],
      ['169.254.169.254:80', 'metadata'],
      ['0xa9fea9fe:80', 'metadata'],
      ['2852039166:80', 'metadata'],
      ['[::ffff:169.254.169.254]:80', 'metadata'],
      ['[fd00:ec2::254]:80', 'metadata'],
      ['[fd20:ce::254]:80', 'metadata'],
      ['[2002:a9fe:a9fe::1]:80', 'metadata'],
      ['168.63.129.16:80', 'metadata'],
      ['100.100.100.200:80', 'metadata'],
    ];
    for (const [destination, by] of cases) {
      const { status, proxyStatus, grpc } = await refusals(scope, server, destination);
      assert.deepEqual([status, /error=(\w+)/.exec(proxyStatus)?.[1]], [403, 'destination_ip_prohibited'], destination);
      assert.match(
        grpc,
        new RegExp(`agents do not dial .* \\(${by}\\); --allow-destinations=${by} lifts this`),
        destination,
      );
    }
    const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const counted = Number(/^isthmus_refused_total\{where="destination"\} (\d+)$/m.exec(page)?.[1]);
    assert.equal(counted, 2 * cases.length, 'each refusal is counted once: none was tried at another session');
  }),
);
