/** Parses `a=b,c=d` (upstream's `--lease-label`). */
export function parseLabels(text: string): Record<string, string> {
  const pairs = text.split(',').map((pair): [string, string] => {
    const [key = '', value, ...rest] = pair.split('=');
    if (key.trim() === '' || value === undefined || rest.length > 0) {
      throw new Error(`bad label ${JSON.stringify(pair)}: want key=value`);
    }
    return [key.trim(), value.trim()];
  });
  return Object.fromEntries(pairs);
}
