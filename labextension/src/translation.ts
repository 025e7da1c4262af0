/** The translation catalog. */
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

/** The domain of language packs. */
export const DOMAIN = 'jupyter_gpushare';

export function bundle(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load(DOMAIN);
}
