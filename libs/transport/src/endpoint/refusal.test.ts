import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DialPolicy, type DialRequest, NotAuthorised } from '@isthmus/tunnel';
import { request as plain } from '../link/testing.ts';
import { type OwnRules, refusalOf } from './refusal.ts';

/** Denies these hosts and addresses; with `allowed`, allows only those. */
function policy(denied: readonly string[], allowed?: readonly string[]): DialPolicy {
  return {
    verdict({ host }, caller, addresses = []) {
      const targets = [host, ...addresses];
      const rule = denied.find((each) => targets.includes(each) || caller === each);
      if (rule !== undefined) return { allowed: false, rule };
      const by = targets.find((target) => allowed?.includes(target));
      return { allowed: allowed === undefined || by !== undefined, rule: by ?? '' };
    },
  };
}

function refusal(host: string, own: OwnRules, more: Partial<DialRequest> = {}) {
  const refused = refusalOf({ ...plain(443), destination: { host, port: 443 }, tenant: 'acme', ...more }, own);
  return (address?: string) => {
    const error = refused(address);
    if (error) assert.deepEqual([error.code, error.retryable], ['destination_ip_prohibited', false]);
    return error?.message;
  };
}

test("an agent's own lists come before its tenant's policy, and the error names flag or rule", () => {
  const own = { policy: policy(['10.0.0.10']) };
  const both = refusal('db', own, { policy: policy(['10.0.0.10', '10.0.0.11']) });
  assert.equal(both('10.0.0.10'), 'dial tcp db:443: this agent does not dial 10.0.0.10: --deny-destinations=10.0.0.10');
  assert.equal(both('10.0.0.11'), 'dial tcp db:443: the policy of tenant acme refuses 10.0.0.11 (rule 10.0.0.11)');
  assert.equal(both('10.0.0.12'), undefined);
});

test('what is in no list of what is allowed is refused, each address by itself', () => {
  const own = refusal('db', { policy: policy([], ['10.0.0.1']) });
  assert.equal(own('10.0.0.1'), undefined);
  assert.equal(
    own('10.0.0.2'),
    'dial tcp db:443: this agent does not dial 10.0.0.2: it is not in its --allow-destinations',
  );
  const tenant = refusal('db', {}, { policy: policy([], ['10.0.0.1']) });
  assert.equal(tenant('10.0.0.1'), undefined);
  assert.equal(tenant('10.0.0.2'), 'dial tcp db:443: the policy of tenant acme refuses 10.0.0.2 (rule allow)');
});

test('a name that is denied is not resolved; one that is not allowed may have addresses that are', () => {
  assert.equal(
    refusal('db', { policy: policy(['db']) })(),
    'dial tcp db:443: this agent does not dial db: --deny-destinations=db',
  );
  assert.equal(refusal('db', { policy: policy([], ['10.0.0.1']) })(), undefined);
});

test('a name that is allowed is refused for an address that is denied', () => {
  const own = refusal('db', { policy: policy(['10.0.0.10'], ['db']) });
  assert.equal(own('10.0.0.1'), undefined);
  assert.match(own('10.0.0.10') ?? '', /--deny-destinations=10.0.0.10/);
});

test('the unspecified address is judged as the loopback that it is dialled as', () => {
  const own = { policy: policy(['127.0.0.1', '::1']) };
  assert.match(refusal('0.0.0.0', own)('127.0.0.1') ?? '', /does not dial 127.0.0.1/);
  assert.match(refusal('::', own)('::1') ?? '', /does not dial ::1/);
});

test('an error has the rule for the audit', () => {
  const ruleOf = (own: OwnRules, more: Partial<DialRequest> = {}) => {
    const error = refusalOf({ ...plain(443), ...more }, own)('127.0.0.1');
    assert.ok(error?.cause instanceof NotAuthorised);
    return error.cause.rule;
  };
  assert.equal(ruleOf({ prohibited: () => 'own-ports' }), 'own-ports');
  assert.equal(ruleOf({ policy: policy(['127.0.0.1']) }), '--deny-destinations=127.0.0.1');
  assert.equal(ruleOf({ policy: policy([], []) }), '--allow-destinations');
  assert.equal(ruleOf({}, { policy: policy(['127.0.0.1']) }), 'dial.127.0.0.1');
  assert.equal(ruleOf({}, { policy: policy([], []) }), 'dial.allow');
});

test("rules see the caller's name", () => {
  const tenant = { policy: policy(['operator']), callerName: 'operator' };
  assert.match(refusal('10.0.0.1', {}, tenant)('10.0.0.1') ?? '', /\(rule operator\)$/);
});

test('what is prohibited is refused first, even if it is allowed', () => {
  const own: OwnRules = { prohibited: () => 'metadata', policy: policy([], ['169.254.169.254']) };
  assert.equal(
    refusal('169.254.169.254', own)('169.254.169.254'),
    'dial tcp 169.254.169.254:443: agents do not dial 169.254.169.254 (metadata); --allow-destinations=metadata lifts this',
  );
});
