import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPrintable, printable, printableJson } from './text.ts';

/** What may make a text look like another, or a terminal act. */
const HIDDEN = [
  '\u001b[2J',
  '\u009b',
  '\u007f',
  '\n',
  '\t',
  '\u2028',
  '\u200e',
  '\u061c',
  '\u202e',
  '\u2066',
  '\u200d',
  '\ufeff',
  '\u{e0041}',
];

test('nothing hidden stays in a text that is shown', () => {
  for (const text of HIDDEN) {
    assert.equal(isPrintable(text), false, JSON.stringify(text));
    assert.match(printable(`a${text}b`), /^a\\u\{[0-9a-f]+\}[^\p{C}]*b$/u);
    assert.equal(printable(printable(text)), printable(text));
  }
  assert.equal(printable('Größe → Ω 中文 ✓'), 'Größe → Ω 中文 ✓');
});

test('a JSON document says the same with what is hidden escaped', () => {
  const view = { texts: HIDDEN };
  const document = printableJson(JSON.stringify(view, null, 2));
  assert.deepEqual(JSON.parse(document), view);
  assert.match(document, /^[\n\P{C}]*$/u);
});
