import type { Tenancy } from '@isthmus/plane';
import type { Stage } from '@isthmus/tunnel';

/** Refuses dials that the tenant's file forbids, by name or literal address. An agent judges what a name was resolved to. */
export function permitted({ permits }: Pick<Tenancy, 'permits'>): Stage {
  const permit: Stage = (next) => (request) => {
    const refusal = permits(request);
    return refusal ? Promise.reject(refusal) : next(request);
  };
  return permit;
}
