import { FlagError } from '../error.ts';
import { string, topic, type Values } from '../flag.ts';

const CONSOLES = ['auto', 'on', 'off'] as const;

export const consolePage = topic('Listening: health, metrics and administration', {
  console: string(
    'auto',
    'Serve the console, a page for operators, at /console/ on the admin port: on, off, or auto, which is on for a loopback address or unix socket, and off otherwise. Any other address needs --admin-server-cert.',
    { own: true },
  ),
  'console-trace-url': string(
    '',
    'Where the console links to the trace of a dial: an http or https URL with {trace_id} in it. Empty for no links.',
    { own: true },
  ),
});

/** Returns when the console is served. @throws FlagError */
export function parseConsole(flags: Pick<Values<typeof consolePage>, 'console'>): (typeof CONSOLES)[number] {
  const found = CONSOLES.find((known) => known === flags.console);
  if (found) return found;
  throw new FlagError('console', `unknown value ${JSON.stringify(flags.console)}: want ${CONSOLES.join(', ')}`);
}

export function checkConsole(flags: Values<typeof consolePage>): void {
  parseConsole(flags);
  const url = flags['console-trace-url'];
  if (url === '') return;
  const sample = url.replaceAll('{trace_id}', '0');
  if (!/^https?:\/\//i.test(sample) || !URL.canParse(sample)) {
    throw new FlagError('console-trace-url', `bad URL ${JSON.stringify(url)}: want http://... or https://...`);
  }
  if (sample === url) throw new FlagError('console-trace-url', `${url} has no {trace_id}: put it where the id belongs`);
}
