import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FROM, PLANE, sourceKeeper, TENANT } from './kinds.ts';

const AGENTS = { namespace: 'kube-system', serviceAccount: 'konnectivity-agent', audience: 'isthmus' };

describe('an object is of a plane', () => {
  const isKept = (kind: typeof TENANT, labels?: Readonly<Record<string, string>>, annotations?: typeof labels) => {
    const metadata = {
      namespace: 'acme',
      name: 'prod',
      ...(labels && { labels }),
      ...(annotations && { annotations }),
    };
    return sourceKeeper(kind, 'one', AGENTS)({ metadata }) !== undefined;
  };
  const asks = (plane: string) => ({ [PLANE]: plane });

  for (const kind of [FROM['cluster-api'], FROM.kamaji])
    it(`if it asks for it by label or annotation, of which the label counts: ${kind.kind}`, () => {
      assert.deepEqual([isKept(kind), isKept(kind, {}, {})], [false, false]);
      assert.deepEqual([isKept(kind, asks('one')), isKept(kind, {}, asks('one'))], [true, true]);
      assert.deepEqual([isKept(kind, asks('one'), asks('two')), isKept(kind, asks('two'), asks('one'))], [true, false]);
      assert.equal(isKept(kind, asks(''), asks('one')), false);
    });

  it('if it is a Tenant that asks for no other', () => {
    assert.deepEqual([isKept(TENANT), isKept(TENANT, asks('one')), isKept(TENANT, asks('two'))], [true, true, false]);
  });
});
