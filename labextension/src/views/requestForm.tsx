/** The request form: presets, amount, project, and when the request would start. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { offerText } from '../expectedWait';
import { requestText } from '../format';
import { sentence } from '../messages';
import { Kernel, KernelRequest, Preset, Status, WhatIfAnswer } from '../schema';
import { IRequestError } from '../state';
import { Alternatives, AskWhatIf, changed, Expectation, useWhatIf } from './whatIf';

/** The options of the form. */
export type IChoices = Pick<Status, 'projects' | 'node_pools' | 'priority_classes' | 'presets'>;

interface IRequestFormProps {
  /** Prefix of element ids: two forms for one kernel may be open. */
  id: string;
  /** The kernel whose share is changed; null: a new notebook. */
  kernel: Kernel | null;
  choices: IChoices;
  refusal: IRequestError | null;
  busy: boolean;
  onSubmit: (request: KernelRequest) => void;
  onCancel: () => void;
  onWhatIf: AskWhatIf;
  /** Further fields, shown first. */
  children?: React.ReactNode;
  /** Details of the selected project. */
  aboutProject?: (project: string) => React.ReactNode;
  trans: TranslationBundle;
}

type Unit = 'gpu' | 'gpu_memory';

/** The field values as typed. */
interface IDraft {
  readonly unit: Unit;
  readonly amount: string;
  readonly limit: string;
  readonly project: string;
  readonly pools: string;
  readonly priority: string;
  readonly preset: string | null;
}

export function RequestForm(props: IRequestFormProps): JSX.Element {
  const { choices, refusal, trans } = props;
  const [draft, setDraft] = React.useState(() => firstDraft(props.kernel, choices));
  const set = (change: Partial<IDraft>) => setDraft({ ...draft, ...change });
  const request = draft.amount.trim() === '' ? null : requestOf(draft);
  const known = useWhatIf(props.onWhatIf, request);
  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    if (request !== null) {
      props.onSubmit(request);
    }
  };
  const choice = (
    field: string,
    label: string,
    name: 'project' | 'pools' | 'priority',
    options: readonly string[]
  ) =>
    options.length > 0 && (
      <Field id={`${props.id}-${field}`} label={label} refusal={refusal} name={field}>
        <select
          id={`${props.id}-${field}`}
          value={draft[name]}
          onChange={event => set({ [name]: event.target.value })}
        >
          {name !== 'project' && <option value="">{trans.__('project default')}</option>}
          {[...new Set([...options, draft[name]])]
            .filter(option => option !== '')
            .map(option => (
              <option key={option}>{option}</option>
            ))}
        </select>
      </Field>
    );
  return (
    <form
      className="jp-GpuShare-form"
      onSubmit={submit}
      aria-label={trans.__('Request a GPU share')}
    >
      {props.children}
      <Presets
        presets={choices.presets}
        draft={draft}
        onWhatIf={props.onWhatIf}
        onChoose={preset => setDraft(drafted(preset.request, draft, preset.name))}
        trans={trans}
      />
      <Amount id={`${props.id}-gpu`} draft={draft} set={set} refusal={refusal} trans={trans} />
      {choice('project', trans.__('Project'), 'project', choices.projects)}
      {draft.project !== '' && props.aboutProject?.(draft.project)}
      <details
        open={
          refusal?.field === 'gpu_limit' ||
          refusal?.field === 'node_pools' ||
          refusal?.field === 'priority_class' ||
          undefined
        }
      >
        <summary>{trans.__('More options')}</summary>
        <Field
          id={`${props.id}-gpu_limit`}
          label={trans.__('Limit (GPUs)')}
          refusal={refusal}
          name="gpu_limit"
        >
          <input
            id={`${props.id}-gpu_limit`}
            value={draft.limit}
            placeholder={trans.__('whole GPU')}
            onChange={event => set({ limit: event.target.value, preset: null })}
          />
        </Field>
        {choice('node_pools', trans.__('Node pool'), 'pools', choices.node_pools)}
        {choice('priority_class', trans.__('Priority'), 'priority', choices.priority_classes)}
      </details>
      {request !== null && !isSaid(known, refusal) && <Expectation known={known} trans={trans} />}
      {request !== null && known !== null && 'answer' in known && (
        <Alternatives
          alternatives={known.answer.alternatives}
          onChoose={change => setDraft(drafted(changed(request, change), draft, null))}
          trans={trans}
        />
      )}
      <div className="jp-GpuShare-actions">
        <button type="submit" className="jp-GpuShare-button jp-mod-primary" disabled={props.busy}>
          {trans.__('Request')}
        </button>
        <button type="button" className="jp-GpuShare-button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
      </div>
    </form>
  );
}

/** Whether the error is shown at its field already. */
function isSaid(known: ReturnType<typeof useWhatIf>, refusal: IRequestError | null): boolean {
  return known !== null && 'problem' in known && known.problem === refusal?.message;
}

function firstDraft(kernel: Kernel | null, choices: IChoices): IDraft {
  const { gpu = null, gpu_memory_mib = null } = kernel?.request ?? {};
  return {
    unit: gpu_memory_mib === null ? 'gpu' : 'gpu_memory',
    amount: gpu_memory_mib !== null ? `${gpu_memory_mib}MiB` : String(gpu ?? 0.5),
    limit: kernel?.limit.gpu === null || kernel === null ? '' : String(kernel.limit.gpu),
    project: kernel?.project ?? choices.projects[0] ?? '',
    pools: '',
    priority: '',
    preset: kernel?.preset ?? null
  };
}

/** The draft for a whole request; fields that the request does not set keep their values. */
function drafted(request: KernelRequest, draft: IDraft, preset: string | null): IDraft {
  const pools = request.node_pools ?? draft.pools;
  return {
    unit: request.gpu_memory === null || request.gpu_memory === undefined ? 'gpu' : 'gpu_memory',
    amount: String(request.gpu_memory ?? request.gpu ?? draft.amount),
    limit: String(request.gpu_limit ?? ''),
    project: request.project ?? draft.project,
    pools: typeof pools === 'string' ? pools : pools.join(','),
    priority: String(request.priority_class ?? draft.priority),
    preset
  };
}

function requestOf(draft: IDraft): KernelRequest {
  const { unit, amount, limit, project, pools, priority, preset } = draft;
  return {
    ...(preset === null ? {} : { preset }),
    [unit]: amount.trim(),
    ...(limit.trim() === '' ? {} : { gpu_limit: limit.trim() }),
    ...(project === '' ? {} : { project }),
    ...(pools === '' ? {} : { node_pools: pools.split(',') }),
    ...(priority === '' ? {} : { priority_class: priority })
  };
}

interface IPresetsProps {
  presets: readonly Preset[];
  draft: IDraft;
  onWhatIf: AskWhatIf;
  onChoose: (preset: Preset) => void;
  trans: TranslationBundle;
}

function Presets({ presets, draft, onWhatIf, onChoose, trans }: IPresetsProps): JSX.Element {
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
        const answer = await ask(requestOf(drafted(preset.request, draft, preset.name))).catch(
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

interface IAmountProps {
  id: string;
  draft: IDraft;
  set: (change: Partial<IDraft>) => void;
  refusal: IRequestError | null;
  trans: TranslationBundle;
}

function Amount({ id, draft, set, refusal, trans }: IAmountProps): JSX.Element {
  const unit = (value: string) => set({ unit: value as Unit, amount: '', preset: null });
  return (
    <Field id={id} label={trans.__('Share')} refusal={refusal} name={draft.unit}>
      <span className="jp-GpuShare-amount">
        <input
          id={id}
          value={draft.amount}
          required
          placeholder={draft.unit === 'gpu' ? '0.5' : '20GiB'}
          onChange={event => set({ amount: event.target.value, preset: null })}
        />
        <select
          aria-label={trans.__('Unit')}
          value={draft.unit}
          onChange={event => unit(event.target.value)}
        >
          <option value="gpu">{trans.__('GPUs')}</option>
          <option value="gpu_memory">{trans.__('GPU memory')}</option>
        </select>
      </span>
    </Field>
  );
}

interface IFieldProps {
  id: string;
  label: string;
  name: string;
  refusal: IRequestError | null;
  children: React.ReactNode;
}

/** A labelled field with its error. */
export function Field({ id, label, name, refusal, children }: IFieldProps): JSX.Element {
  return (
    <div className="jp-GpuShare-field">
      <label htmlFor={id}>{label}</label>
      {children}
      {refusal !== null && refusal.field === name && (
        <div className="jp-GpuShare-refusal" role="alert">
          {sentence(refusal.message)}
        </div>
      )}
    </div>
  );
}
