import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseLabels } from './labels.ts';

describe('labels', () => {
  it('are read as in upstream', () => {
    assert.deepEqual(parseLabels(' k8s-app = konnectivity-server,a='), { 'k8s-app': 'konnectivity-server', a: '' });
  });

  for (const bad of ['', 'a', 'a=b,', 'a=b=c', '=b']) {
    it(`reject ${JSON.stringify(bad)}`, () => assert.throws(() => parseLabels(bad), /bad label .*: want key=value/));
  }
});
