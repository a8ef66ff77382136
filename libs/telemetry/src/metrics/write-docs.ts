import { readFileSync, writeFileSync } from 'node:fs';
import { metricsMarkdown } from './markdown.ts';

// Writes docs/METRICS.md, or with --check says whether it is up to date.
const path = new URL('../../../../docs/METRICS.md', import.meta.url);
const wanted = metricsMarkdown();
if (!process.argv.includes('--check')) {
  writeFileSync(path, wanted);
} else if (written() !== wanted) {
  process.stderr.write('docs/METRICS.md is out of date: run npm run generate\n');
  process.exitCode = 1;
}

function written(): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
