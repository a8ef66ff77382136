import { shown } from '../model/text.ts';

/** A text that a peer chose. `bdi` keeps its direction from turning what stands around it. */
export function Name({ text, most }: { readonly text: string; readonly most?: number }) {
  return (
    <bdi class="name" title={text.length > (most ?? 64) ? shown(text, 500) : undefined}>
      {shown(text, most)}
    </bdi>
  );
}
