/** `## 1.2.3 - 2026-01-31`, or `unreleased` for the date. */
const HEADING = /^## (\S+) - (\d{4}-\d{2}-\d{2}|unreleased)$/;

/**
 * Returns what CHANGELOG.md says of a version: its date, or undefined as long as it is unreleased, and the text. Throws if it says nothing.
 */
export function changesOf(version, changelog) {
  const lines = changelog.split('\n');
  const start = lines.findIndex((line) => HEADING.exec(line)?.[1] === version);
  const wanted = `CHANGELOG.md has no section for ${version}, the version in package.json: add one that begins with`;
  if (start < 0) throw new Error(`${wanted} "## ${version} - unreleased"`);
  const length = lines.slice(start + 1).findIndex((line) => line.startsWith('## '));
  const text = lines
    .slice(start + 1, length < 0 ? undefined : start + 1 + length)
    .join('\n')
    .trim();
  if (text === '')
    throw new Error(`CHANGELOG.md has nothing in its section for ${version}: say what changes for who runs it`);
  const [, , date] = HEADING.exec(lines[start]);
  return { date: date === 'unreleased' ? undefined : date, text };
}
