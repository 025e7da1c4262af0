/** The catalogue of our strings. */
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

/** The name under which a language pack carries our strings. */
export const DOMAIN = 'jupyter_gpushare';

export function bundle(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load(DOMAIN);
}
