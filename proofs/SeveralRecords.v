(* Rule "exchange norms", several records per person. A person with at most m records becomes anybody by
   at most m exchanges; norms grow by the factors m (l1) and m^2 (squared l2). *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Chain Tables ExchangeNorms.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

Section SeveralRecords.
Variables (n : nat) (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Local Notation dataset := (dataset (record F V) n).
Local Notation same_totals := (@same_totals (record F V) B _ (tuple_in block node) n).
Local Notation active := (@active (record F V) B _ (tuple_in block node) n).
Local Notation adjacent := (@adjacent n F B V N block node).
Implicit Types (X Y Z : dataset) (own : {set 'I_n}).

(* REACH WITH SEVERAL RECORDS. A person has the records [own]. If some dataset Y with the same totals has
   them as wished, at most one exchange per record leads from X to a dataset that has them so, and at
   most |own| (q + 1) records change. *)
Theorem several_records_reach X Y own : same_totals X Y ->
  exists s : seq dataset, [/\ path adjacent X s, size s <= #|own|,
    forall i, i \in own -> last X s i = Y i & distance X (last X s) <= #|own| * (#|active X| + 1)].
Proof.
pose todo X := own :&: changed X Y.
have step k X' : same_totals X' Y -> #|todo X'| <= k -> exists s : seq dataset,
    [/\ path adjacent X' s, size s <= k & forall i, i \in own -> last X' s i = Y i].
  elim: k X' => [|k IH] X' hXY hk.
    exists [::]; split=> //= i io; apply/eqP; apply: contraT => ne.
    by move: hk; rewrite leqn0 cards_eq0 => /eqP/setP/(_ i); rewrite !inE io ne.
  case: (set_0Vmem (todo X')) => [e|[p]].
    exists [::]; split=> //= i io; apply/eqP; apply: contraT => ne.
    by have /setP/(_ i) := e; rewrite !inE io ne.
  rewrite inE => /andP[po pc]; have [Z hZ sub] := chain_step hXY pc.
  have hZY : same_totals Z Y.
    by apply: same_totals_trans hXY; rewrite same_totals_sym adjacent_same_totals.
  have less : #|todo Z| <= k.
    have lt : todo Z \proper todo X'.
      apply/properP; split; first by apply/setIS/(subset_trans sub)/subsetDl.
      exists p; first by rewrite inE po pc.
      by apply/negP=> /setIP[_ /(subsetP sub)]; rewrite !inE eqxx.
    by rewrite -ltnS; apply: leq_trans (proper_card lt) hk.
  have [s [ps ss hs]] := IH Z hZY less.
  by exists (Z :: s); split=> //=; rewrite hZ.
move=> hXY; have [s [ps ss hs]] := step #|own| X hXY (subset_leq_card (subsetIl _ _)).
exists s; split=> //; apply: (@leq_trans (size s * (#|active X| + 1))); last by rewrite leq_mul2r ss orbT.
elim: s X ps {step ss hs hXY todo} => [|Z s IH] X /=.
  by move=> _; rewrite mul0n leqn0 cards_eq0; apply/eqP/setP=> i; rewrite !inE eqxx.
case/andP=> hZ ps; rewrite mulSn.
apply: (@leq_trans (distance X Z + distance Z (last Z s))).
  apply: leq_trans (leq_card_setU _ _); apply: subset_leq_card; apply/subsetP=> i; rewrite !inE.
  by apply: contraNT; rewrite negb_or !negbK => /andP[/eqP -> /eqP ->].
apply: leq_add; first exact: adjacent_in_ball hZ.
by rewrite (same_active (adjacent_same_totals hZ)); apply: IH.
Qed.

Variables (M : finType) (label : F -> V -> M).
Hypothesis chains : forall f, on_chain node label f.
Local Notation cells := (@cells n F V M label).
Local Notation touched := (@touched n F B V N block node M label).

(* NORMS WITH SEVERAL RECORDS. After at most m exchanges the tables differ by at most 2 m (q_S + 1) in l1
   and by at most m^2 (q_S^2 + q_S + 2) in squared l2. *)
Theorem several_records_norms X s (m : nat) (q := #|touched X|) : path adjacent X s -> size s <= m ->
  (l1 (cells X) (cells (last X s)) <= Posz (m * (2 * (q + 1)))%N)%R /\
  (l2_squared (cells X) (cells (last X s)) <= Posz (m ^ 2 * (q ^ 2 + q + 2))%N)%R.
Proof.
rewrite {}/q; elim: s X m => [|Z s IH] X m /=.
  by move=> _ _; rewrite /l1 /l2_squared !big1 // => c _; rewrite subrr ?normr0 ?expr0n.
case: m => // m /andP[hZ ps] sm; have [a1 a2] := exchange_norms chains hZ.
have [b1 b2] := IH Z m ps sm.
rewrite -(touched_same chains (adjacent_same_totals hZ)) in b1 b2; set q := #|touched X| in a1 a2 b1 b2 *.
set d := (fun c => table (cells X) c - table (cells Z) c)%R.
set e := (fun c => table (cells Z) c - table (cells (last Z s)) c)%R.
have sum_de c : (table (cells X) c - table (cells (last Z s)) c = d c + e c)%R.
  by rewrite /d /e addrA subrK.
split.
  apply: (@le_trans _ _ (l1 (cells X) (cells Z) + l1 (cells Z) (cells (last Z s)))%R).
    rewrite /l1 -big_split; apply: ler_sum => c _; rewrite sum_de; exact: ler_norm_add.
  by apply: le_trans (ler_add a1 b1) _; rewrite -PoszD lez_nat; lia.
(* (d + e)^2 <= (m + 1) d^2 + (1 + 1/m) e^2, without fractions *)
case: m sm b1 b2 => [|m] sm b1 b2.
  have s0 : s = [::] by case: (s) sm.
  by rewrite s0 /= exp1n mul1n.
have weighted : (Posz m.+1 * l2_squared (cells X) (cells (last Z s)) <=
    Posz (m.+1 * m.+2)%N * l2_squared (cells X) (cells Z)
    + Posz m.+2 * l2_squared (cells Z) (cells (last Z s)))%R.
  rewrite /l2_squared !mulr_sumr -big_split; apply: ler_sum => c _ /=; rewrite sum_de -/(d c) -/(e c).
  move: (d c) (e c) => u v.
  have square : (0 <= (Posz m.+1 * u - v) ^+ 2)%R by apply: sqr_ge0.
  by rewrite -subr_ge0; move: square; congr (_ <= _)%R; lia.
rewrite -(@ler_pmul2l _ (Posz m.+1)) //; apply: le_trans weighted _.
apply: (@le_trans _ _ (Posz (m.+1 * m.+2)%N * Posz (q ^ 2 + q + 2)%N
                       + Posz m.+2 * Posz (m.+1 ^ 2 * (q ^ 2 + q + 2))%N)%R).
  by apply: ler_add; apply: ler_wpmul2l.
by rewrite -!PoszM -PoszD lez_nat -!mulnn; move: (q * q + q + 2) => t; nia.
Qed.

End SeveralRecords.
