export function plural(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

export function millis(ms: number | undefined): string {
  if (ms === undefined) return '–';
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 10_000) return `${Math.round(ms).toLocaleString('en')} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Two units at most: `3 h 20 min`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const DAY_MS = 86_400_000;

/** With fewer days left, a renewal is overdue. */
const FEW_DAYS = 14;

/** Says when a certificate ends that has few days left, or none. */
export function endsSoon(
  expiresMs: number,
  now: number,
): { readonly over: boolean; readonly text: string } | undefined {
  const days = Math.floor((expiresMs - now) / DAY_MS);
  if (days >= FEW_DAYS) return undefined;
  const on = new Date(expiresMs).toISOString().slice(0, 10);
  return { over: days < 0, text: days < 0 ? `expired on ${on}` : `expires on ${on}, in ${plural(days, 'day')}` };
}
