/** Formats milliseconds with as many digits as are useful: `0.42 ms`, `7.3 ms`, `420 ms`, `12.4 s`. */
export function millis(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 100) return `${ms.toFixed(0)} ms`;
  return `${ms.toFixed(ms < 1 ? 2 : 1)} ms`;
}

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** Formats bytes in powers of 1000: `0 B`, `999 B`, `1.5 kB`, `12 MB`. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)} ${BYTE_UNITS[unit]}`;
}

const AGES = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'm'],
  [1000, 's'],
] as const;

/** Formats milliseconds in the two largest units: `0s`, `59s`, `2m5s`, `3h`, `12d4h`. */
export function age(ms: number): string {
  const first = AGES.findIndex(([unit]) => ms >= unit);
  if (first < 0) return '0s';
  let left = ms;
  const parts = AGES.slice(first, first + 2).map(([unit, name]) => {
    const count = Math.floor(left / unit);
    left -= count * unit;
    return count === 0 ? '' : `${count}${name}`;
  });
  return parts.join('');
}

/** `1 agent`, `2 agents`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
