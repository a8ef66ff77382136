// Checks that the packages of the workspace keep their boundaries:
//   node scripts/boundaries.mjs [ROOT]
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { violations } from './lib/boundaries.mjs';
import { bin, command } from './lib/command.mjs';
import { ROOT, readJson } from './lib/workspace.mjs';

/** Returns the current graph from Nx, without its daemon and cache, which may have an older one. */
async function nxGraph(root) {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-graph-'));
  try {
    const file = join(dir, 'graph.json');
    const env = { NX_DAEMON: 'false', NX_CACHE_PROJECT_GRAPH: 'false' };
    const { status, output } = await command([bin('nx'), 'graph', `--file=${file}`], {
      cwd: root,
      env,
      timeout: 120_000,
    });
    if (status !== 0) throw new Error(`nx graph failed with status ${status}:\n${output}`);
    return readJson(file).graph;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const root = resolve(process.argv[2] ?? ROOT);
const graph = await nxGraph(root);
const found = violations(root, graph);
for (const violation of found) console.error(violation);
console.log(`${Object.keys(graph.nodes).length} packages, ${found.length} boundaries broken`);
process.exitCode = found.length > 0 ? 1 : 0;
