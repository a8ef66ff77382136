import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { type PolicyRules, policyOf } from '@isthmus/admission/policy';
import type { Tenancy } from '@isthmus/plane';
import {
  type Dial,
  DialAbort,
  DialError,
  dialLog,
  formatDestination,
  type Prohibition,
  parseDestination,
  planeEvents,
} from '@isthmus/tunnel';
import { DirectDials } from './direct.ts';

interface Given {
  readonly rules?: PolicyRules['allow'];
  readonly lifted?: readonly Prohibition[];
  readonly file?: PolicyRules & { readonly direct?: PolicyRules['allow'] };
  /** Called when a tenant's file is read. */
  readonly read?: () => void;
  readonly changed?: Tenancy['changed'];
}

function directly({ rules = [], lifted = [], file, read = () => {}, changed = () => () => {} }: Given): DirectDials {
  const { direct, ...dial } = file ?? {};
  const tenant = {
    policy: policyOf(dial),
    direct: direct && policyOf({ allow: direct }),
    get file() {
      read();
      return { tenant: 'acme', agents: [{ port: 9001 }], callers: [{ port: 9002 }] };
    },
  };
  const tenants = { get: (name: string) => (name === 'acme' ? tenant : undefined), all: [tenant], size: 1 };
  return new DirectDials({
    rules,
    lifted,
    ports: [8090],
    ownAddresses: () => ['192.0.2.7'],
    ...(file && { tenancy: { tenants: tenants as never, changed } }),
    observation: { events: planeEvents() },
  });
}

const TO_AGENT: Dial = () => Promise.reject(new DialError('destination_unavailable', 'to an agent'));

/** How a dial ends: the text of its error, or the agent's name. */
async function ends(given: Given, destination: string, by = directly(given)): Promise<string> {
  const deadline = performance.now() + 5000;
  const request = {
    id: '0',
    tenant: 'acme',
    destination: parseDestination(destination),
    deadline,
    signal: new DialAbort(),
    log: dialLog(),
  };
  try {
    const { end, agentId, sessionId, hubId } = await by.direct(TO_AGENT)(request);
    end.abort(new Error('over'));
    return [agentId, sessionId, hubId, ...request.log.attempts.map(({ kind, outcome }) => `${kind} ${outcome}`)].join();
  } catch (error) {
    return (error as DialError).message;
  }
}

test('rules choose by the name or address that a caller wrote, and by port; by the flag for all, by a file among these for its tenant', () => {
  const rules = [
    { name: '10.0.0.0/8:443', cidr: '10.0.0.0/8', ports: [443] },
    { name: '*.svc', host: '*.svc' },
  ];
  const plain = directly({ rules, file: {} });
  const of = (host: string, port: number, { tenant = 'acme', caller = 'api', by = plain } = {}) =>
    by.rule(tenant, { host, port }, caller);
  assert.equal(of('10.1.2.3', 443), '--direct-destinations=10.0.0.0/8:443');
  assert.equal(of('::ffff:10.1.2.3', 443), '--direct-destinations=10.0.0.0/8:443');
  assert.equal(of('Webhook.SVC.', 8443, { tenant: 'other' }), '--direct-destinations=*.svc');
  for (const [host, port] of [
    ['10.1.2.3', 444],
    ['11.0.0.1', 443],
    ['svc', 443],
    ['x.svc.evil', 443],
  ] as const)
    assert.equal(of(host, port), undefined, host);
  const direct = [
    { name: 'hooks', host: 'hooks.svc', callers: ['api'] },
    { name: 'own', host: 'hooks.acme.example' },
  ];
  const by = directly({ rules, file: { direct } });
  assert.equal(of('hooks.svc', 1, { by }), 'dial.hooks');
  assert.equal(of('hooks.svc', 1, { by, caller: 'other' }), undefined);
  assert.equal(of('hooks.svc', 1, { by, tenant: 'other' }), '--direct-destinations=*.svc');
  assert.equal(of('other.svc', 1, { by }), undefined);
  assert.equal(of('hooks.acme.example', 1, { by }), undefined, 'the flag does not list it');
  assert.equal(of('hooks.acme.example', 1, { by: directly({ file: { direct } }) }), undefined);
});

test('loopback, own ports, link-local and metadata addresses are not dialled, however they are written, unless they are named', async () => {
  const rules = [{ name: '*' }];
  const refused = [
    ['127.0.0.1:22', 'loopback'],
    ['127.8.8.8:8090', 'loopback'],
    ['[::1]:22', 'loopback'],
    ['0.0.0.0:22', 'loopback'],
    ['[::]:22', 'loopback'],
    ['[::ffff:127.0.0.1]:22', 'loopback'],
    ['[64:ff9b::7f00:1]:22', 'loopback'],
    ['localhost:22', 'loopback'],
    ['192.0.2.7:8090', 'own-ports'],
    ['[::ffff:192.0.2.7]:9001', 'own-ports'],
    ['192.0.2.7:9002', 'own-ports'],
    ['169.254.169.254:80', 'metadata'],
    ['[::ffff:169.254.169.254]:80', 'metadata'],
    ['[fd00:ec2::254]:80', 'metadata'],
    ['169.254.1.1:80', 'link-local'],
  ] as const;
  for (const [destination, why] of refused)
    assert.match(
      await ends({ rules, file: {} }, destination),
      new RegExp(`a gateway does not dial \\S+ \\(${why}\\); --direct-destinations=${why} lifts this$`),
      destination,
    );
  assert.match(await ends({ rules, file: {}, lifted: ['loopback'] }, '127.0.0.1:8090'), /\(own-ports\)/);
});

test("a socket is opened here by a rule, if the tenant's rules allow each address too; all else goes to an agent", async (context) => {
  const server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const lifted = ['loopback'] as const;
  const direct = [{ name: 'here', host: 'localhost', ports: [port] }];
  const here = formatDestination({ host: 'localhost', port });
  assert.equal(await ends({ lifted, rules: direct, file: { direct } }, here), 'direct,,,direct established');
  assert.equal(await ends({ lifted, rules: direct, file: { direct } }, `127.0.0.1:${port}`), 'to an agent');
  const deny = [
    { name: 'inside', cidr: '127.0.0.0/8' },
    { name: 'inside', cidr: '::1/128' },
  ];
  assert.match(
    await ends({ lifted, rules: direct, file: { direct, deny } }, here),
    /policy of tenant acme refuses .* \(rule inside\)/,
  );
});

test("tenants' files are read for own ports once, and again after a change", async () => {
  let reads = 0;
  let change: Parameters<Tenancy['changed']>[0] = () => {};
  const given: Given = {
    rules: [{ name: '*' }],
    file: {},
    read: () => void reads++,
    changed(listener) {
      change = listener;
      return () => {};
    },
  };
  const by = directly(given);
  const dial = async () => assert.match(await ends(given, '192.0.2.7:9002', by), /\(own-ports\)/);
  await dial();
  await dial();
  assert.equal(reads, 1);
  change({ changed: ['acme'], gone: [] });
  await dial();
  assert.equal(reads, 2);
});
