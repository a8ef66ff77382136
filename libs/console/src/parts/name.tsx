import { shown } from '../model/text.ts';

/** Characters of a name that is not broken into lines: a table scrolls sideways instead. */
const BRIEF = 24;

/** A text that a peer chose. `bdi` keeps its direction from turning what stands around it. */
export function Name({ text, most }: { readonly text: string; readonly most?: number }) {
  return (
    <bdi
      class={text.length > BRIEF ? 'name' : 'name brief'}
      title={text.length > (most ?? 64) ? shown(text, 500) : undefined}
    >
      {shown(text, most)}
    </bdi>
  );
}
