import type { PlaneEventMap, PlaneEvents } from '@isthmus/tunnel';

/** Listeners by event. */
export type Subscriptions = { readonly [Name in keyof PlaneEventMap]?: (...args: PlaneEventMap[Name]) => void };

/** Listens to these events until the returned function is called. */
export function subscribe(events: PlaneEvents, subscriptions: Subscriptions): () => void {
  // `Subscriptions` pairs each name with a listener of its arguments; Object.entries() forgets the pairing.
  const entries = Object.entries(subscriptions) as [keyof PlaneEventMap, () => void][];
  for (const [name, listener] of entries) events.on(name, listener);
  return () => {
    for (const [name, listener] of entries) events.off(name, listener);
  };
}
