// Generates TypeScript from libs/proto/proto, offline (buf and its plugin come from node_modules).
//   node scripts/generate.mjs           writes libs/proto/src/gen
//   node scripts/generate.mjs --check   writes nothing, fails when the committed code differs
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const proto = join(root, 'libs', 'proto');
const committedDir = join(proto, 'src', 'gen');

/** Relative path to text, of every file below a directory. */
function readTree(dir) {
  if (!existsSync(dir)) return new Map();
  const files = readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map((entry) => {
      const path = join(entry.parentPath ?? entry.path, entry.name);
      return [relative(dir, path), readFileSync(path, 'utf8')];
    }),
  );
}

function generate() {
  const out = mkdtempSync(join(tmpdir(), 'isthmus-generate-'));
  try {
    const buf = join(root, 'node_modules', '.bin', 'buf');
    const { status, error } = spawnSync(buf, ['generate', '-o', out], {
      cwd: proto,
      stdio: 'inherit',
      timeout: 120_000,
      env: { ...process.env, BUF_CACHE_DIR: join(out, 'cache') },
    });
    if (error) throw new Error(`cannot run ${buf} (npm ci installs it): ${error.message}`);
    if (status !== 0) throw new Error(`buf generate failed with status ${status}`);
    return readTree(join(out, 'src', 'gen'));
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

function differences(generated, committed) {
  return [
    ...[...generated].filter(([path, text]) => committed.get(path) !== text).map(([path]) => path),
    ...[...committed.keys()].filter((path) => !generated.has(path)),
  ].sort();
}

const check = process.argv.includes('--check');
const generated = generate();
const changed = differences(generated, readTree(committedDir));

if (check && changed.length > 0) {
  process.stderr.write(`generated code is not up to date, run npm run generate: ${changed.join(', ')}\n`);
  process.exit(1);
}
for (const path of check ? [] : changed) {
  const file = join(committedDir, path);
  const text = generated.get(path);
  if (text === undefined) {
    rmSync(file);
  } else {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}
process.stdout.write(`generated code is up to date: ${generated.size} files, ${check ? 0 : changed.length} written\n`);
