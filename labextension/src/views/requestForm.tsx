/** The request form: presets, amount, project, and when the request would start. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { amountError, readings, Unit } from '../amounts';
import { Kernel, KernelRequest } from '../schema';
import { IRequestError } from '../state';
import { Field } from './field';
import { useKeptFocus } from './keptFocus';
import { Presets } from './presets';
import { draftOf, firstDraft, IChoices, IDraft, requestOf } from './requestDraft';
import {
  Alternatives,
  AskWhatIf,
  changed,
  Expectation,
  isImpossible,
  SETTLE_MS,
  useWhatIf
} from './whatIf';

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

export function RequestForm(props: IRequestFormProps): JSX.Element {
  const { choices, trans } = props;
  const [draft, setDraft] = React.useState(() => firstDraft(props.kernel, choices));
  const set = (change: Partial<IDraft>) => setDraft({ ...draft, queueAnyway: false, ...change });
  const mistake = mistakeIn(draft, trans);
  const settled = useSettled(mistake?.message ?? null) ? mistake : null;
  const refusal = settled ?? props.refusal;
  const isEmpty = draft.amount.trim() === '';
  const request = isEmpty || mistake !== null ? null : requestOf(draft);
  const form = React.useRef<HTMLFormElement>(null);
  const keepFocus = useKeptFocus(form, () => focusTarget(form.current));
  const known = useWhatIf(props.onWhatIf, request);
  const isBlocked = isImpossible(known);
  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    if (request !== null && !props.busy && !isBlocked) {
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
      ref={form}
      {...keepFocus}
      className="jp-GpuShare-form"
      onSubmit={submit}
      aria-label={trans.__('Request a GPU share')}
    >
      {props.children}
      <Presets
        presets={choices.presets}
        draft={draft}
        onWhatIf={props.onWhatIf}
        onChoose={preset => setDraft(draftOf(preset.request, draft, preset.name))}
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
      {(isBlocked || draft.queueAnyway) && (
        <label>
          <input
            type="checkbox"
            checked={draft.queueAnyway}
            onChange={event => set({ queueAnyway: event.target.checked })}
          />{' '}
          {trans.__('Queue anyway')}
        </label>
      )}
      {request !== null && known !== null && 'answer' in known && (
        <Alternatives
          alternatives={known.answer.alternatives}
          onChoose={change => setDraft(draftOf(changed(request, change), draft, null))}
          trans={trans}
        />
      )}
      <div className="jp-GpuShare-actions">
        <button
          type="submit"
          className="jp-GpuShare-button jp-mod-primary"
          aria-disabled={props.busy || mistake !== null || isBlocked}
        >
          {trans.__('Request')}
        </button>
        <button type="button" className="jp-GpuShare-button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
      </div>
    </form>
  );
}

/** An error that the page finds itself; presets have been checked by the server. */
function mistakeIn(draft: IDraft, trans: TranslationBundle): IRequestError | null {
  return draft.preset !== null || draft.amount.trim() === '' ? null : amountError(draft, trans);
}

/** Whether the value has not changed for a moment: "0" is no mistake of a person typing "0.5". */
function useSettled(value: string | null): boolean {
  const [settled, setSettled] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), SETTLE_MS);
    return () => window.clearTimeout(timer);
  }, [value]);
  return settled === value;
}

/** Where the focus of a form begins: the selected preset, else the amount. */
export function focusTarget(form: Element | null): HTMLElement | null {
  return (
    form?.querySelector<HTMLElement>('[aria-pressed="true"]') ??
    form?.querySelector<HTMLElement>('.jp-GpuShare-amount input') ??
    null
  );
}

/** Whether the error is shown at its field already. */
function isSaid(known: ReturnType<typeof useWhatIf>, refusal: IRequestError | null): boolean {
  return known !== null && 'problem' in known && known.problem === refusal?.message;
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
      {draft.unit === 'gpu_memory' && draft.preset === null && (
        <Readings amount={draft.amount} onChoose={amount => set({ amount })} trans={trans} />
      )}
    </Field>
  );
}

interface IReadingsProps {
  amount: string;
  onChoose: (amount: string) => void;
  trans: TranslationBundle;
}

/** The likely readings of a size without a unit, each as a button. */
function Readings({ amount, onChoose, trans }: IReadingsProps): JSX.Element | null {
  const options = readings(amount);
  return options.length === 0 ? null : (
    <div className="jp-GpuShare-small">
      {options.map(option => (
        <button
          key={option}
          type="button"
          className="jp-GpuShare-link"
          onClick={() => onChoose(option)}
        >
          {trans.__('Use %1', option)}
        </button>
      ))}
    </div>
  );
}
