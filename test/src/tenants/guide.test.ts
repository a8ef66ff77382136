import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { DEADLINE_MS, freePort, onDeno, ROOT, scoped, tempDir } from '../harness/index.ts';

/** Ports that the guide uses; all but the tenant's own are defaults of the programs. */
const PORTS = { 8090: 'server-port', 8091: 'agent-port', 8092: 'health-port', 8095: 'admin-port' } as const;

const skip = onDeno
  ? 'the programs of the guide are for Node'
  : spawnSync('curl', ['--version']).error && 'curl is not installed';

/** Returns the shell of a document's section. */
function shellOf(document: string, section: string): string {
  const text = readFileSync(join(ROOT, document), 'utf8');
  const [, part = ''] = new RegExp(`\\n## ${section}\\n([\\s\\S]*?)\\n## `).exec(text) ?? [];
  return [...part.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block).join('');
}

test(
  'every command of "Try it" in docs/TENANTS.md works as it stands, but for ports and directory',
  { skip },
  scoped(async (scope) => {
    const dir = await tempDir(scope);
    const ports = new Map<string, number>();
    for (const port of [...Object.keys(PORTS), '8093', '8094', '9132']) ports.set(port, await freePort());
    const flags = Object.entries(PORTS).map(([port, flag]) => `--${flag}=${port}`);
    const script = shellOf('docs/TENANTS.md', 'Try it')
      .replace('\nproxy-server', `\nproxy-server ${flags.join(' ')}`)
      .replace('\nproxy-agent', '\nproxy-agent --health-server-port=8093 --admin-server-port=8094')
      .replaceAll(/\b(80\d\d|9132)\b/g, (port) => String(ports.get(port) ?? port))
      .replaceAll('try/', `${dir}/`);
    const admin = `127.0.0.1:${ports.get('8095')}`;
    const { stdout } = await promisify(execFile)(
      'bash',
      ['-euo', 'pipefail', '-c', `trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n${script}`],
      {
        cwd: ROOT,
        env: { ...process.env, ISTHMUS_ADDRESS: admin },
        timeout: 3 * DEADLINE_MS,
      },
    );
    assert.match(stdout, /1 file: 1 tenant, all can be used/);
    assert.match(stdout, /^acme +1 +1 .* acme\.yaml$/m, 'isthmus tenants');
    assert.match(stdout, /^edge-1 +acme +ready/m, 'isthmus agents');
    assert.match(stdout, /answers through edge-1/, 'isthmus dial');
    assert.match(stdout, /dial\.allow/, 'isthmus explain');
  }),
);
