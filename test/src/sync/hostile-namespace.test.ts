import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { peakBytes, residentBytes, scoped, times, unlessBundled, unlessSlow, until } from '../harness/index.ts';
import { ListedApi } from './listed-api.ts';
import { newCa, secretOf, tenantOf } from './objects.ts';
import { faultOf, faults, files, startSync, written } from './synced.ts';

const MIB = 1024 * 1024;
const DAY_MS = 86_400_000;
/** Sorted before all others. */
const HOSTILE = 'a-hostile';
/** What a sync may have resident: without that namespace 90 MiB, and of large objects no more if there are three times as many. */
const MOST_MIB = 150;
const LARGE = Buffer.alloc(MIB, 'x').toString();

const ofSecret = (name: string) => ({ agents: [{ certificates: { ca: { secretRef: { name, key: 'ca.crt' } } } }] });

/** A spec that says a lot. */
function saying(bytes: number, name: string): object {
  const item = { cidr: '10.0.0.0/8', name: 'n'.repeat(900) };
  return { ...ofSecret(name), dial: { allow: Array.from({ length: Math.ceil(bytes / 940) }, () => item) } };
}

describe('Beside a namespace whose owner labels and says what fits into an etcd, a sync', () => {
  test(
    'keeps no more of it than its share, says so, has all others, and takes the rest once there is room',
    scoped(async (scope) => {
      const api = await ListedApi.start(scope);
      const ca = await newCa();
      const full = 10_000;
      api.add('secrets', full + 2000, (n) =>
        secretOf(HOSTILE, `s-${n}`, { [n === full ? 'ca.crt' : '']: n === full ? ca : '' }),
      );
      api.add('secrets', 5, (n) => secretOf(HOSTILE, `t-${n}`, { 'ca.crt': LARGE }));
      api.add('secrets', 1, () => secretOf('good', 'one', { 'ca.crt': ca.replace('\n', '\n') }));
      api.add('tenants', 1, () => tenantOf(HOSTILE, 'last', ofSecret(`s-${full}`)));
      api.add('tenants', 20, (n) => tenantOf(HOSTILE, `large-${n}`, saying(MIB, 'none')));
      api.add('tenants', 40, (n) => tenantOf(HOSTILE, `many-${String(n).padStart(2, '0')}`, saying(200_000, 'none')));
      api.add('tenants', 1, () => tenantOf('good', 'one', { ...ofSecret('one'), tenant: 'good' }));
      const { dir } = await startSync(scope, api);
      await written(dir, 'good.one.yaml');
      assert.match(
        await faultOf(dir, `Tenant ${HOSTILE}/large-7`),
        /^it has 1\d{6} characters: at most 262144 are read$/,
      );
      assert.match(await faultOf(dir, `Tenant ${HOSTILE}/many-00`), /secret a-hostile\/none has no key/);
      assert.match(
        await faultOf(dir, `Tenant ${HOSTILE}/many-39`),
        /^what tenants of a-hostile say has more than 4194304 characters/,
      );
      const lacks = /what is labelled in a-hostile has more than 10000 keys and allowed namespaces or 4194304 bytes/;
      assert.match(await faultOf(dir, `Tenant ${HOSTILE}/last`), lacks);
      const own = () => faults(dir).filter(({ object }) => object === 'isthmus tenants sync');
      assert.match(
        own()
          .map(({ fault }) => fault)
          .join(),
        lacks,
      );
      // Each has two entries.
      for (let n = 0; n <= full / 2; n++) api.delete('secrets', 0);
      await until(() => faults(dir).some(({ object, fault }) => object.endsWith('/last') && !lacks.test(fault)), {
        deadline: 180_000,
        what: () => `room for the secret: ${JSON.stringify(faults(dir).slice(0, 3))}`,
      });
    }),
  );

  test(
    'stays within its memory with a thousand other tenants, and these are in force',
    { skip: unlessSlow() || unlessBundled() },
    scoped(async (scope, context) => {
      const api = await ListedApi.start(scope);
      const servers = await CertificateAuthority.create('servers', DAY_MS);
      const good = await times(1000, async (n) => {
        const { cert, key } = await servers.issue({
          commonName: `t-${n}`,
          validMs: DAY_MS,
          hosts: LOOPBACK,
          uses: ['server'],
        });
        return { 'ca.crt': await newCa(), 'tls.crt': cert, 'tls.key': key };
      });
      api.add('secrets', 500, (n) => secretOf(HOSTILE, `large-${n}`, { 'ca.crt': LARGE }));
      api.add('secrets', 20_000, (n) => secretOf(HOSTILE, `many-${n}`, { 'ca.crt': `${n}`.repeat(300) }));
      api.add('tenants', 500, (n) => tenantOf(HOSTILE, `large-${n}`, saying(MIB, 'none')));
      api.add('tenants', 12_000, (n) => tenantOf(HOSTILE, `many-${n}`, saying(300, `many-${n}`)));
      const ref = (name: string, key: string) => ({ secretRef: { name, key } });
      for (const [n, values] of good.entries()) {
        const [namespace, name] = [`many-${n % 10}`, `t-${n}`];
        api.add('secrets', 1, () => secretOf(namespace, name, values));
        api.add('tenants', 1, () =>
          tenantOf(namespace, name, {
            server: {
              serverNames: [`${name}.plane.example`],
              certificate: ref(name, 'tls.crt'),
              key: ref(name, 'tls.key'),
            },
            agents: [{ certificates: { ca: ref(name, 'ca.crt') } }],
          }),
        );
      }
      const start = performance.now();
      const { dir, program } = await startSync(scope, api);
      await until(() => files(dir).length === good.length, {
        deadline: 300_000,
        every: 1000,
        what: () => `${good.length} tenants, of which ${files(dir).length} are written`,
      });
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      const mib = (of: (pid: number) => number) => Math.round(of(program.pid) / MIB);
      context.diagnostic(
        `${good.length} tenants written after ${seconds} s; ${mib(residentBytes)} MiB, at most ${mib(peakBytes)}`,
      );
      assert.ok(mib(residentBytes) <= MOST_MIB, `${mib(residentBytes)} MiB`);
    }),
  );
});
