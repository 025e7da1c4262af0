/** The presets as buttons, each with the time of its start. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { offerText } from '../expectedWait';
import { requestText } from '../format';
import { Preset, WhatIfAnswer } from '../schema';
import { draftOf, IDraft, requestOf } from './requestDraft';
import { AskWhatIf } from './whatIf';

interface IPresetsProps {
  presets: readonly Preset[];
  draft: IDraft;
  onWhatIf: AskWhatIf;
  onChoose: (preset: Preset) => void;
  trans: TranslationBundle;
}

export function Presets({ presets, draft, onWhatIf, onChoose, trans }: IPresetsProps): JSX.Element {
  const offers = useOffers(presets, draft, onWhatIf);
  const offered = ({ name }: Preset) =>
    offers[name] === undefined ? '' : offerText(offers[name], trans);
  const isChosen = (preset: Preset) =>
    draft.preset === preset.name ||
    (draft.preset === null &&
      draft.unit === 'gpu' &&
      draft.amount === String(preset.request.gpu) &&
      draft.limit === '');
  return (
    <div className="jp-GpuShare-presets" role="group" aria-label={trans.__('Presets')}>
      {presets.map(preset => (
        <button
          key={preset.name}
          type="button"
          className="jp-GpuShare-button"
          aria-pressed={isChosen(preset)}
          title={[preset.description, requestText(preset.request), offered(preset)]
            .filter(part => part !== '')
            .join(': ')}
          onClick={() => onChoose(preset)}
        >
          {preset.name}
          <span className="jp-GpuShare-offer" aria-hidden>
            {offered(preset)}
          </span>
        </button>
      ))}
    </div>
  );
}

/** Each preset costs one what-if request. */
const MOST_OFFERS = 8;

/** What-if answers per preset for the selected project, requested one after the other. */
function useOffers(
  presets: readonly Preset[],
  draft: IDraft,
  ask: AskWhatIf
): { readonly [preset: string]: WhatIfAnswer } {
  const [offers, setOffers] = React.useState<{ readonly [preset: string]: WhatIfAnswer }>({});
  const names = presets.map(preset => preset.name).join('\n');
  React.useEffect(() => {
    let wanted = true;
    setOffers({});
    const askAll = async () => {
      for (const preset of presets.slice(0, MOST_OFFERS)) {
        const answer = await ask(requestOf(draftOf(preset.request, draft, preset.name))).catch(
          () => null
        );
        if (!wanted) {
          return;
        }
        if (answer !== null) {
          setOffers(known => ({ ...known, [preset.name]: answer }));
        }
      }
    };
    void askAll();
    return () => {
      wanted = false;
    };
  }, [names, draft.project]);
  return offers;
}
