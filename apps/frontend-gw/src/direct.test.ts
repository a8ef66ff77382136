import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { type PolicyRules, policyOf } from '@isthmus/admission/policy';
import {
  type Dial,
  DialAbort,
  DialError,
  formatDestination,
  noTracer,
  type Prohibition,
  parseDestination,
  planeEvents,
} from '@isthmus/tunnel';
import { DirectDials } from './direct.ts';

interface Given {
  readonly rules?: PolicyRules['allow'];
  readonly lifted?: readonly Prohibition[];
  readonly file?: PolicyRules & { readonly direct?: PolicyRules['allow'] };
}

function directly({ rules = [], lifted = [], file }: Given): DirectDials {
  const { direct = [], ...dial } = file ?? {};
  const tenant = {
    policy: policyOf(dial),
    direct: policyOf({ allow: direct }),
    file: { tenant: 'acme', agents: [{ port: 9001 }], callers: [{ port: 9002 }] },
  };
  const tenants = { get: (name: string) => (name === 'acme' ? tenant : undefined), all: [tenant], size: 1 };
  return new DirectDials({
    rules,
    lifted,
    ports: [8090],
    ownAddresses: () => ['192.0.2.7'],
    ...(file && { tenancy: { tenants: tenants as never } }),
    observation: { events: planeEvents(), tracer: noTracer },
  });
}

const TO_AGENT: Dial = () => Promise.reject(new DialError('destination_unavailable', 'to an agent'));

/** How a dial ends: the text of its error, or the agent's name. */
async function ends(given: Given, destination: string): Promise<string> {
  const deadline = performance.now() + 5000;
  const request = {
    id: '0',
    tenant: 'acme',
    destination: parseDestination(destination),
    deadline,
    signal: new DialAbort(),
  };
  try {
    const { end, agentId, sessionId, hubId } = await directly(given).direct(TO_AGENT)(request);
    end.abort(new Error('over'));
    return [agentId, sessionId, hubId].join();
  } catch (error) {
    return (error as DialError).message;
  }
}

test('rules choose by the name or address that a caller wrote, and by port; by the flag for all, by a file for its tenant', () => {
  const rules = [
    { name: '10.0.0.0/8:443', cidr: '10.0.0.0/8', ports: [443] },
    { name: '*.svc', host: '*.svc' },
  ];
  const both = directly({ rules, file: { direct: [{ name: 'hooks', host: 'hooks.acme.example', callers: ['api'] }] } });
  const of = (host: string, port: number, { tenant = 'acme', caller = 'api' } = {}) =>
    both.rule(tenant, { host, port }, caller);
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
  assert.equal(of('hooks.acme.example', 1), 'dial.hooks');
  assert.equal(of('hooks.acme.example', 1, { caller: 'other' }), undefined);
  assert.equal(of('hooks.acme.example', 1, { tenant: 'other' }), undefined);
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
  assert.equal(await ends({ lifted, file: { direct } }, here), 'direct,,');
  assert.equal(await ends({ lifted, file: { direct } }, `127.0.0.1:${port}`), 'to an agent');
  const deny = [
    { name: 'inside', cidr: '127.0.0.0/8' },
    { name: 'inside', cidr: '::1/128' },
  ];
  assert.match(
    await ends({ lifted, file: { direct, deny } }, here),
    /policy of tenant acme refuses .* \(rule inside\)/,
  );
});
