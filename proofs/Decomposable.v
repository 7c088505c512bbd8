(* Rule "reach". Overlapping margins that form a junction tree with m cliques (such as AB,
   BC, CD): every person reaches every possible y if at most m + 1 records change. So a(t) <= m + 1. *)
From mathcomp Require Import all_ssreflect fingroup perm.
Require Import Datasets.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Decomposable.
(* Features F, leaves V. Margin k shows the features S k; margins may overlap. *)
Variables (F V K : finType) (S : K -> {set F}) (n : nat).
Local Notation record := [finType of {ffun F -> V}].
Local Notation dataset := (dataset record n).
Implicit Types (x y r : record) (X Y : dataset) (p i j : 'I_n) (T : {set F}) (ks : seq K).

Definition margin_of r k : {ffun F -> option V} := [ffun f => if f \in S k then Some (r f) else None].

(* All features that some margin of a list shows. *)
Definition union ks : {set F} := \bigcup_(k <- ks) S k.

(* A running intersection order, last clique first: what a clique shares with all cliques after it in
   the list lies in one of them. Such an order exists exactly for decomposable margins. *)
Fixpoint junction_order ks : bool :=
  if ks is k :: rest then
    junction_order rest &&
    ((rest == [::]) || has (fun l => S k :&: union rest \subset S l) rest)
  else true.

Lemma union_cons k ks : union (k :: ks) = S k :|: union ks.
Proof. by rewrite /union big_cons. Qed.

Lemma subset_union ks k : k \in ks -> S k \subset union ks.
Proof.
elim: ks => // k' ks IH; rewrite inE union_cons => /orP[/eqP ->|/IH h]; first exact: subsetUl.
exact: subset_trans h (subsetUr _ _).
Qed.

(* x and r agree on the features of T. *)
Definition agree_on T x r := [forall (f | f \in T), x f == r f].

Lemma agree_onP T x r : reflect (forall f, f \in T -> x f = r f) (agree_on T x r).
Proof.
apply: (iffP forallP) => h f; first by move=> fT; have /implyP/(_ fT)/eqP := h f.
by apply/implyP=> fT; apply/eqP; apply: h.
Qed.

Lemma agree_on_sub T T' x r : T \subset T' -> agree_on T' x r -> agree_on T x r.
Proof. by move=> /subsetP s /agree_onP h; apply/agree_onP=> f /s; apply: h. Qed.

Lemma margin_ofP x r k : reflect (forall f, f \in S k -> x f = r f) (margin_of x k == margin_of r k).
Proof.
apply: (iffP eqP) => [/ffunP h f fk|h]; first by have := h f; rewrite !ffunE fk => -[].
by apply/ffunP=> f; rewrite !ffunE; case: ifP => // /h ->.
Qed.

(* ---- swapping some features between the person and another record ---- *)

Definition swap_in T x r : record := [ffun f => if f \in T then r f else x f].

Definition swap_at T p j X : dataset :=
  [ffun i => if i == p then swap_in T (X p) (X j) else if i == j then swap_in T (X j) (X p) else X i].

(* The swap respects a margin if its features change hands all or none, as far as one can see. *)
Definition respects ks T x r :=
  all (fun k => agree_on (S k :&: T) x r || agree_on (S k :\: T) x r) ks.

Lemma swap_total ks T p j X k v : respects ks T (X p) (X j) -> k \in ks ->
  total margin_of (swap_at T p j X) k v = total margin_of X k v.
Proof.
move=> /allP h /h /orP[/agree_onP same|/agree_onP same].
  (* nobody's margin changes *)
  apply: eq_card => i; rewrite !inE; congr (_ == _); apply/eqP/margin_ofP=> f fk.
  rewrite ffunE; case: (eqVneq i p) => [->|ip]; [|case: (eqVneq i j) => [->|//]];
    rewrite ffunE; case: ifP => // fT; by rewrite same // inE fk fT.
(* the person and the other record swap the whole margin *)
rewrite /total -(card_preimset [set i | margin_of (X i) k == v] (@perm_inj _ (tperm p j))).
apply: eq_card => i; rewrite !inE; congr (_ == _); apply/eqP/margin_ofP=> f fk.
rewrite ffunE; case: tpermP => [->|->|/eqP ip /eqP ij].
- by rewrite eqxx ffunE; case: ifP => // fT; rewrite same // inE fT fk.
- case: (eqVneq j p) => [->|jp]; first by rewrite ffunE; case: ifP.
  by rewrite eqxx ffunE; case: ifP => // fT; rewrite same // inE fT fk.
by rewrite (negbTE ip) (negbTE ij).
Qed.

(* Y arises from X by m swaps between the person and others, each of which respects all margins. *)
Inductive swaps ks p X : nat -> dataset -> Prop :=
| NoSwap : swaps ks p X 0 X
| OneMore m Y T j : swaps ks p X m Y -> respects ks T (Y p) (Y j) ->
    swaps ks p X m.+1 (swap_at T p j Y).

Lemma swaps_total ks p X m Y k v : swaps ks p X m Y -> k \in ks ->
  total margin_of Y k v = total margin_of X k v.
Proof. by move=> h kk; elim: h => // {}m {}Y T j _ IH hr; rewrite (swap_total v hr kk). Qed.

Lemma swaps_helpers ks p X m Y : swaps ks p X m Y ->
  exists2 H : {set 'I_n}, #|H| <= m & forall i, i != p -> i \notin H -> Y i = X i.
Proof.
elim=> [|{}m {}Y T j _ [H cH IH] _]; first by exists set0; rewrite ?cards0.
exists (j |: H); first by rewrite cardsU1; case: (j \in H); rewrite ?ltnS // ltnW.
move=> i ip; rewrite in_setU1 negb_or => /andP[ij iH].
by rewrite ffunE (negbTE ip) (negbTE ij) IH.
Qed.

(* A sequence of swaps for the other margins extends to a further clique k: either the swap leaves
   what k shares with them alone, and then it leaves k's own features alone, or it moves all of what
   they share, and then it moves k's own features too. *)
Lemma swaps_extend k ks p X m Y : junction_order (k :: ks) -> swaps ks p X m Y ->
  exists2 Y', swaps (k :: ks) p X m Y' & forall i f, f \in union ks -> Y' i f = Y i f.
Proof.
move=> /= /andP[_ tree]; set U := union ks; set own := S k :\: U.
elim=> [|{}m {}Y T j _ [Y' h' same] hr]; first by exists X; first exact: NoSwap.
have agree' (A : {set F}) : A \subset U -> agree_on A (Y p) (Y j) -> agree_on A (Y' p) (Y' j).
  move=> /subsetP sub /agree_onP h; apply/agree_onP=> f fA.
  by rewrite !same ?sub //; apply: h.
have [T' T'U hr'] : exists2 T' : {set F}, (forall f, f \in U -> (f \in T') = (f \in T))
    & respects (k :: ks) T' (Y' p) (Y' j).
  have old (T' : {set F}) : (forall f, f \in U -> (f \in T') = (f \in T)) -> respects ks T' (Y' p) (Y' j).
    move=> eT; apply/allP=> k' kk; have sub : S k' \subset U := subset_union kk.
    have eI : S k' :&: T' = S k' :&: T.
      by apply/setP=> f; rewrite !inE; case fk : (f \in S k') => //=; rewrite eT // (subsetP sub).
    have eD : S k' :\: T' = S k' :\: T.
      apply/setP=> f; rewrite !inE andbC [RHS]andbC.
      by case fk : (f \in S k') => //=; rewrite eT // (subsetP sub).
    rewrite eI eD; case/orP: (allP hr k' kk) => h.
      by rewrite (agree' _ _ h) ?(subset_trans (subsetIl _ _) sub).
    by rewrite (agree' _ _ h) ?orbT ?(subset_trans (subsetDl _ _) sub).
  have keep : (forall f, f \in U -> (f \in T :&: U) = (f \in T)) by move=> f fU; rewrite inE fU andbT.
  have move_too : (forall f, f \in U -> (f \in (T :&: U) :|: own) = (f \in T)).
    by move=> f fU; rewrite !inE fU andbT /= orbF.
  case/orP: tree => [/eqP e|/hasP[k0 k0s /subsetP sep]].
    (* no other clique: nothing is swapped *)
    exists (T :&: U) => //=; rewrite old // andbT; apply/orP; left; apply/agree_onP=> f.
    by rewrite !inE /U /union e big_nil inE !andbF.
  have sub0 : S k0 \subset U := subset_union k0s.
  case/orP: (allP hr k0 k0s) => /agree_onP h.
    exists (T :&: U) => //=; rewrite old // andbT; apply/orP; left; apply/agree_onP=> f.
    rewrite !inE => /and3P[fk fT fU]; rewrite !same //; apply: h.
    by rewrite inE fT andbT; apply: sep; rewrite inE fk.
  exists ((T :&: U) :|: own) => //=; rewrite old // andbT; apply/orP; right; apply/agree_onP=> f.
  rewrite !inE negb_or negb_and => /andP[/andP[nT nO] fk].
  have fU : f \in U by move: nO; rewrite fk andbT negbK.
  rewrite !same //; apply: h; rewrite inE; move: nT; rewrite fU orbF => -> /=.
  by apply: sep; rewrite inE fk.
exists (swap_at T' p j Y'); first exact: OneMore.
move=> i f fU; rewrite !ffunE; case: ifP => _; [|case: ifP => _]; rewrite ?same // !ffunE T'U //;
  by rewrite !same.
Qed.

(* If somebody has y's value in every margin, then after as many swaps as there are cliques the person
   agrees with y on all published features. *)
Lemma swaps_reach ks X p y : junction_order ks ->
  (forall k, k \in ks -> exists j, margin_of (X j) k = margin_of y k) ->
  exists2 Y, swaps ks p X (size ks) Y & forall f, f \in union ks -> Y p f = y f.
Proof.
elim: ks => [|k ks IH] order hy.
  by exists X; [exact: NoSwap|move=> f; rewrite /union big_nil inE].
have [|k' kk|Y hY Yp] := IH; first by case/andP: order.
  by apply: hy; rewrite inE kk orbT.
have [Y' hY' same] := swaps_extend order hY.
have [j hj] : exists j, margin_of (Y' j) k = margin_of y k.
  have : 0 < total margin_of Y' k (margin_of y k).
    rewrite (swaps_total _ hY') ?mem_head //; have [j e] := hy k (mem_head _ _).
    by apply/card_gt0P; exists j; rewrite inE e.
  by case/card_gt0P=> j; rewrite inE => /eqP e; exists j.
move/eqP/margin_ofP: hj => hj; set U := union ks.
exists (swap_at (S k :\: U) p j Y').
  apply: OneMore hY' _; rewrite /=; apply/andP; split.
    apply/orP; right; apply/agree_onP=> f; rewrite !inE negb_and negbK => /andP[/orP[fU|/negbTE ->]] //.
    by move=> fk; rewrite same // Yp // hj.
  apply/allP=> k' kk; apply/orP; left; apply/agree_onP=> f; rewrite !inE => /and3P[fk' nU _].
  by rewrite (subsetP (subset_union kk)) in nU.
move=> f; rewrite union_cons inE ffunE eqxx ffunE !inE -/U.
case fU : (f \in U) => /=; first by rewrite same // Yp.
by rewrite orbF => fk; rewrite fk hj.
Qed.

(* The order lists all published margins. *)
Variable ks : seq K.
Hypothesis all_margins : forall k, k \in ks.
Hypothesis decomposable : junction_order ks.

(* REACH FOR DECOMPOSABLE MARGINS. If all margins of y are positive, person p can become exactly y. All
   margins are kept, and at most one other record changes for every clique. *)
Theorem decomposable_reach X p y : inhabited margin_of X y ->
  exists Y, [/\ same_totals margin_of X Y, Y p = y & distance X Y <= size ks + 1].
Proof.
move=> /inhabitedP hy.
have [Y hY Yp] := swaps_reach p decomposable (fun k (_ : k \in ks) => hy k).
exists [ffun i => if i == p then y else Y i]; split; last 1 first.
- have [H cH out] := swaps_helpers hY.
  apply: (@leq_trans #|p |: H|); last by rewrite cardsU1 addnC leq_add ?leq_b1.
  apply: subset_leq_card; apply/subsetP=> i; rewrite !inE ffunE; case: (eqVneq i p) => //= ip.
  by apply: contraNT => /(out i ip) ->; rewrite eqxx.
- apply/same_totalsP=> k v; rewrite -(swaps_total v hY (all_margins k)).
  apply: eq_card => i; rewrite !inE ffunE; congr (_ == _); case: (eqVneq i p) => // ->.
  by apply/eqP/margin_ofP=> f fk; rewrite Yp // (subsetP (subset_union (all_margins k))).
- by rewrite ffunE eqxx.
Qed.

(* a(t) FOR DECOMPOSABLE MARGINS: a(t) <= number of cliques + 1. *)
Theorem semi_adjacency_decomposable X0 : semi_adjacency margin_of X0 <= size ks + 1.
Proof.
rewrite semi_adjacencyP; apply/sufficesP=> X p y hX hy; apply: decomposable_reach.
by rewrite -(same_inhabited _ hX); apply: possible_inhabited.
Qed.

(* WHAT IS POSSIBLE UNDER DECOMPOSABLE MARGINS: exactly the y whose margins are all positive. *)
Theorem decomposable_possible X y (p : 'I_n) : possible margin_of X y = inhabited margin_of X y.
Proof.
apply/idP/idP; first exact: possible_inhabited.
by move=> /(decomposable_reach p)[Y [h e _]]; apply/possibleP; exists Y, p.
Qed.

End Decomposable.
