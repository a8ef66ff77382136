import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentIdentifiers } from '@isthmus/tunnel';
import ipaddr from 'ipaddr.js';
import { type Claims, claimsOf } from './claims.ts';

const nothing: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

function refusal(claims: Claims, identifiers: Partial<AgentIdentifiers>, agentId = 'node-7'): string | undefined {
  return claims({ agentId, identifiers: { ...nothing, ...identifiers } }, { name: 'node-7' })?.why;
}

test('without a file an agent claims its own id and the default route, and nothing else', () => {
  const claims = claimsOf();
  assert.equal(refusal(claims, { defaultRoute: true }), undefined);
  assert.equal(refusal(claims, {}, 'node-8'), 'agent id node-8 is not node-7: claims.agentId is own');
  assert.equal(refusal(claims, { ipv4: ['10.0.0.1'] }), 'ipv4=10.0.0.1 is not covered by claims.ipv4');
  assert.equal(refusal(claims, { host: ['db'] }), 'host=db is not covered by claims.host');
});

test('an agent may claim what lies in what the file allows', () => {
  const claims = claimsOf({ defaultRoute: false, cidr: ['10.0.0.0/8'], host: ['*.acme.example'], agentId: 'prefixed' });
  assert.equal(refusal(claims, { cidr: ['10.1.0.0/16'], ipv4: ['10.0.0.1'], host: ['db.acme.example'] }), undefined);
  assert.equal(refusal(claims, {}, 'node-7-b'), undefined);
  assert.match(refusal(claims, {}, 'node-77') ?? '', /agent id/);
  assert.match(refusal(claims, { cidr: ['0.0.0.0/0'] }) ?? '', /cidr=0\.0\.0\.0\/0/);
  assert.match(refusal(claims, { cidr: ['not a prefix'] }) ?? '', /not covered/);
  assert.match(refusal(claims, { ipv6: ['2001:db8::1'] }) ?? '', /ipv6/);
  assert.match(refusal(claims, { defaultRoute: true }) ?? '', /claims\.defaultRoute is false/);
});

test('each address that an agent claims is read once, however many prefixes the file has', (t) => {
  const claims = claimsOf({ cidr: Array.from({ length: 200 }, (_, at) => `10.0.${at}.0/24`) });
  const read = t.mock.method(ipaddr, 'process');
  assert.equal(refusal(claims, { ipv4: Array.from({ length: 50 }, () => '10.0.199.1') }), undefined);
  assert.equal(read.mock.callCount(), 50);
});

test('agents that share a credential may have any id, unless the file says otherwise', () => {
  const claim = { agentId: 'node-8', identifiers: nothing };
  const owner = { name: 'system:serviceaccount:kube-system:konnectivity-agent', shared: true };
  assert.equal(claimsOf()(claim, owner), undefined);
  assert.equal(claimsOf({ agentId: 'own' })(claim, owner)?.rule, 'claims.agentId');
});
