import type { Dial } from '../rpc/messages.ts';
import { shellWord } from './text.ts';

/** Who is asked: the admin port, and the gateway of the plane. */
export interface Place {
  readonly address: string;
  readonly gateway: string;
}

/** Returns the command line that repeats a dial through the same agent, or undefined if its names cannot be pasted safely. */
export function dialLine(
  dial: Pick<Dial, 'destination' | 'tenant' | 'agentId'>,
  { address, gateway }: Place,
): string | undefined {
  const { destination, tenant, agentId } = dial;
  const words = [
    'isthmus',
    'dial',
    // An `=` keeps a name that begins with a dash from being read as an option.
    ...(agentId === '' ? [] : [`--agent=${agentId}`]),
    ...(tenant === '' || tenant === 'default' ? [] : [`--tenant=${tenant}`]),
    ...(gateway === '' ? [] : [`--gateway=${gateway}`]),
    `--address=${address}`,
    ...(destination.startsWith('-') ? ['--'] : []),
    destination,
  ].map(shellWord);
  return words.includes(undefined) ? undefined : words.join(' ');
}

/** Returns the address of a dial's trace, or undefined without a template or a trace. */
export function traceLink(template: string, traceId: string): string | undefined {
  return template !== '' && /^[0-9a-f]{32}$/.test(traceId) ? template.replaceAll('{trace_id}', traceId) : undefined;
}
